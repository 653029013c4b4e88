"""Definitions and hypotheses that a proof may use: a parameter at given indices is replaced by an expression."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sympy import Expr, MatrixExpr, Symbol

from symbolic.symbols import Parameter

Bounds = dict[Symbol, Expr]


def _nonnegative(value: Expr) -> bool:
    """Tell whether an index is at least 0 for all values of its symbols, each of which is at least 0."""
    constant, symbolic = value.as_coeff_Add()
    return bool(
        constant.is_integer
        and constant >= 0
        and (symbolic == 0 or all(t.is_Symbol for t in symbolic.args or (symbolic,)))
    )


def _at_most(small: Expr, large: Expr, bounds: Bounds) -> bool:
    return _nonnegative((large - small.xreplace(bounds)).expand())


@dataclass(frozen=True)
class Definition:
    """`left := right`, for every value of its variables.

    Args:
        left: a parameter whose indices are integers, or a variable plus an integer.
        right: what it stands for.
        variables: the symbols in `left` that may take any value from 0 on; without any it holds at one place only.
        where: pairs `(a, b)` with `a ≤ b`, which must be known for the definition to apply.

    Example:
        >>> from sympy import symbols
        >>> i, d = symbols("i d", integer=True)
        >>> P, W = (lambda k: Parameter("P", (k,), d, d)), (lambda k: Parameter("W'", (k, 1), d, d))
        >>> print(Definition(P(i + 1), W(i + 1) * P(i), (i,)).applied_to(P(3)))
        W′₃,₁ P₂
    """

    left: Parameter
    right: MatrixExpr
    variables: tuple[Symbol, ...] = ()
    where: tuple[tuple[Expr, Expr], ...] = field(default=())

    def applied_to(self, parameter: Parameter, bounds: Bounds | None = None) -> MatrixExpr | None:
        """Return what the parameter stands for, or None if the definition doesn't apply to it.

        Args:
            parameter: the parameter.
            bounds: what is known of bound indices: the largest value of each.
        """
        if (self.left.letter, len(self.left.indices)) != (parameter.letter, len(parameter.indices)):
            return None
        values: dict[Symbol, Expr] = {}
        for pattern, index in zip(self.left.indices, parameter.indices, strict=True):
            variable = next((v for v in self.variables if pattern.has(v)), None)
            if variable is None:
                if pattern != index:
                    return None
            elif values.setdefault(variable, index - (pattern - variable)) != index - (pattern - variable):
                return None
        known = bounds or {}
        if not all(_nonnegative(value) for value in values.values()):
            return None
        if not all(_at_most(a.subs(values), b.subs(values), known) for a, b in self.where):
            return None
        return self.right.xreplace(values)


def lookup(parameter: Parameter, definitions: Iterable[Definition], bounds: Bounds) -> MatrixExpr | None:
    """Return what the first definition that applies makes of a parameter.

    Args:
        parameter: the parameter.
        definitions: in the order in which they are tried.
        bounds: the largest value of each bound index.
    """
    return next((right for d in definitions if (right := d.applied_to(parameter, bounds)) is not None), None)
