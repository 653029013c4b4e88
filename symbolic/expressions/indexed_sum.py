"""Represent sums over layers or heads, with bounds that may be symbols."""

from functools import cache
from typing import Any

from sympy import Basic, Dummy, MatrixExpr, ZeroMatrix, sympify
from sympy.matrices.expressions import MatAdd
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.errors import SymbolicError
from symbolic.expressions.matrix import Matrix, MatrixSum


class Index(Dummy):
    """A bound index: equal to no symbol that anybody else makes, and printed by its name."""

    level = -1  # how many sums stand around its own, if it is the canonical index of a normal form

    def _latex(self, printer: Printer) -> str:
        return self.name

    def _sympystr(self, printer: Printer) -> str:
        return self.name


class _Canonical(Index):
    """The canonical index of the sums of one level."""

    __slots__ = ("level",)


@cache
def bound_index(level: int, name: str) -> Index:
    """Return the canonical index of a sum with so many sums around it."""
    index = _Canonical(name, integer=True)
    index.level = level
    return index


class IndexedSum(Matrix):
    """`Σ_{j=first}^{last} body`, with bounds that may be symbols.

    Args:
        body: the summand, an expression in the index.
        index: the bound symbol `j`.
        first: its first value.
        last: its last value; the sum is zero if it is `first − 1`.
    """

    def __new__(cls, body: Any, index: Any, first: Any, last: Any) -> "IndexedSum":
        """Return the expression."""
        return super().__new__(cls, body, index, first, last)

    precedence = PRECEDENCE["Mul"]
    body = property(lambda self: self.args[0])
    index = property(lambda self: self.args[1])
    first = property(lambda self: self.args[2])
    last = property(lambda self: self.args[3])
    shape = property(lambda self: self.args[0].shape)

    def at(self, value: Any) -> MatrixExpr:
        """Return the summand at one value of the index.

        Args:
            value: the value.
        """
        return self.body.xreplace({self.index: sympify(value)})

    def terms(self) -> list[MatrixExpr]:
        """Return the summands in order.

        Raises:
            SymbolicError: if a bound is a symbol.
        """
        if not (self.first.is_Integer and self.last.is_Integer):
            raise SymbolicError(f"a bound of {self} is a symbol: give a number for it")
        return [self.at(k) for k in range(int(self.first), int(self.last) + 1)]

    def written_out(self) -> MatrixExpr:
        """Return the sum term by term.

        Raises:
            SymbolicError: if a bound is a symbol.
        """
        terms = self.terms()
        return MatrixSum(*terms) if terms else ZeroMatrix(*self.shape)

    @property
    def free_symbols(self) -> set[Basic]:
        """The symbols in it, without its index."""
        return self.body.free_symbols - {self.index} | self.first.free_symbols | self.last.free_symbols

    def doit(self, **hints: Any) -> MatrixExpr:
        """Return the sum written out, if its bounds are numbers.

        Args:
            hints: as in sympy.
        """
        if not (self.first.is_Integer and self.last.is_Integer):
            return super().doit(**hints)
        return self.written_out().doit(**hints)

    def _eval_subs(self, old: Basic, new: Basic) -> Basic:
        return self.xreplace({old: new})

    # sympy has no public way to tell xreplace that an index is bound; its own Sum is replaced index and all.
    def _xreplace(self, rule: dict) -> tuple[Basic, bool]:
        """Replace free symbols only: the index is bound, and what is put in isn't captured by it."""
        if self in rule:
            return rule[self], True
        body, index, first, last = self.args
        inner = {old: new for old, new in rule.items() if old != index}
        if any(index in getattr(new, "free_symbols", ()) for new in inner.values()):
            fresh = Index(index.name, integer=True)
            body, index = body.xreplace({index: fresh}), fresh
        parts = [body._xreplace(inner), first._xreplace(rule), last._xreplace(rule)]
        if not any(changed for _, changed in parts):
            return self, False
        return IndexedSum(parts[0][0], index, parts[1][0], parts[2][0]), True

    def _latex(self, printer: Printer) -> str:
        bounds = rf"_{{{printer._print(self.index)}={printer._print(self.first)}}}^{{{printer._print(self.last)}}}"
        body = printer._print(self.body)
        return rf"\sum{bounds} " + (rf"\left({body}\right)" if isinstance(self.body, MatAdd) else body)

    def _sympystr(self, printer: Printer) -> str:
        bounds = f"[{self.index}={printer._print(self.first)}..{printer._print(self.last)}]".replace(" ", "")
        body = printer._print(self.body)
        return f"Σ{bounds} " + (f"({body})" if isinstance(self.body, MatAdd) else body)
