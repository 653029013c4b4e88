"""What a Transformer does to matrices besides sums and products: σ, diag, vec, and sums over layers or heads."""

from functools import cache
from typing import Any

from sympy import Basic, Dummy, Integer, MatrixExpr, sympify
from sympy.matrices.expressions import MatAdd
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.algebra import Matrix
from symbolic.errors import ShapeMismatch, SymbolicError


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
def bound_index(level: int) -> Index:
    """Return the canonical index of a sum with so many sums around it.

    Args:
        level: number of sums around it.
    """
    names = "jklmpqrs"
    index = _Canonical(names[level % len(names)] + "'" * (level // len(names)), integer=True)
    index.level = level
    return index


class Activation(Matrix):
    """`σ(z)`, or its derivative `σ'(z)`, entry by entry.

    Args:
        argument: `z`.
        order: 0 for `σ`, 1 for `σ'`.
    """

    def __new__(cls, argument: Any, order: Any = 0) -> "Activation":
        """Return the expression."""
        if order not in (0, 1):
            raise SymbolicError(f"σ with {order} primes: only σ and its slope σ' are known")
        return Basic.__new__(cls, sympify(argument), sympify(order))

    argument = property(lambda self: self.args[0])
    order = property(lambda self: int(self.args[1]))
    shape = property(lambda self: self.args[0].shape)

    def _latex(self, printer: Printer) -> str:
        return rf"\sigma{chr(39) * self.order}\!\left({printer._print(self.argument)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"σ{'′' * self.order}({printer._print(self.argument)})"


class Diagonal(Matrix):
    """`diag(v)`, the square matrix with a vector on its diagonal: `diag(v) w` is `v ⊙ w`.

    Args:
        vector: `v`.
    """

    def __new__(cls, vector: Any) -> "Diagonal":
        """Return the expression."""
        if vector.shape[1] != 1:
            raise ShapeMismatch(f"diag takes a vector, and {vector} is {vector.shape[0]} × {vector.shape[1]}")
        return Basic.__new__(cls, vector)

    vector = property(lambda self: self.args[0])
    shape = property(lambda self: (self.args[0].shape[0], self.args[0].shape[0]))

    def _eval_transpose(self) -> "Diagonal":
        return self

    def _latex(self, printer: Printer) -> str:
        return rf"\operatorname{{diag}}\!\left({printer._print(self.vector)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"diag({printer._print(self.vector)})"


class Vec(Matrix):
    """`vec(X)`, the entries of a matrix row by row, which the papers write as `x'` (their `T_D`).

    Args:
        matrix: `X`, `[N, M]`.
    """

    def __new__(cls, matrix: Any) -> "Vec":
        """Return the expression."""
        return Basic.__new__(cls, matrix)

    matrix = property(lambda self: self.args[0])
    shape = property(lambda self: (self.args[0].shape[0] * self.args[0].shape[1], Integer(1)))

    def _latex(self, printer: Printer) -> str:
        return rf"\operatorname{{vec}}\!\left({printer._print(self.matrix)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"vec({printer._print(self.matrix)})"


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
        return Basic.__new__(cls, body, index, sympify(first), sympify(last))

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
