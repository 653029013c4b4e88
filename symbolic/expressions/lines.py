"""A formula in lines of readable length, broken between summands, and inside brackets where one summand is too long."""

from typing import Any, NamedTuple

from sympy import sstr
from sympy.matrices.expressions import MatAdd, MatMul

from symbolic.expressions.activation import Activation
from symbolic.expressions.latex import bracketed, typeset

_INSIDE = 110  # characters of plain text from which on a summand is broken inside its brackets


class Line(NamedTuple):
    """One line of a formula.

    Args:
        latex: its LaTeX.
        length: how long it is as plain text.
    """

    latex: str
    length: int


def _inside(summand: Any) -> list[Line]:
    """Return a product or an activation with its longest bracket on lines of its own."""
    factors = list(summand.args) if isinstance(summand, MatMul) else [summand]
    sums = {k: factor.argument if isinstance(factor, Activation) else factor for k, factor in enumerate(factors)}
    sums = {k: inner for k, inner in sums.items() if isinstance(inner, MatAdd)}
    if not sums:
        return [Line(typeset(summand), len(sstr(summand)))]
    widest = max(sums, key=lambda k: len(sstr(sums[k])))
    name = factors[widest].latex_name if isinstance(factors[widest], Activation) else ""
    before, after = (" ".join(map(bracketed, part)) for part in (factors[:widest], factors[widest + 1 :]))
    first, *others = lines(sums[widest], _INSIDE)
    length = sum(len(sstr(factor)) for factor in factors[:widest]) + 2
    rows = [Line(rf"{before} {name}\bigl({first.latex}", length + first.length)]
    rows += [Line(rf"\quad {line.latex}", line.length) for line in others]
    last = rows[-1]
    return [
        *rows[:-1],
        Line(rf"{last.latex}\bigr) {after}", last.length + sum(len(sstr(f)) for f in factors[widest + 1 :])),
    ]


def lines(expression: Any, room: int) -> list[Line]:
    r"""Return the LaTeX of an expression in lines.

    Args:
        expression: a matrix expression, or anything that `typeset` takes.
        room: characters of plain text that a line holds.

    Example:
        >>> from symbolic.theorems.residual_stack import ResidualStack
        >>> for line in lines(ResidualStack().form(12), 12):
        ...     print(line.latex)
        \mathbf{P}_{12} \mathbf{x}'_{0} + \mathbf{q}_{12}
        + \mathrm{UAT}^{R}_{12}
    """
    found: list[Line] = []
    for k, summand in enumerate(expression.args if isinstance(expression, MatAdd) else [expression]):
        plain = len(sstr(summand))
        rows = _inside(summand) if plain > _INSIDE else [Line(typeset(summand), plain)]
        sign = "" if k == 0 or rows[0].latex.startswith("-") else "+ "
        first = Line(sign + rows[0].latex, rows[0].length + 3)
        if found and found[-1].length + first.length - 3 <= room and len(rows) == 1:
            found[-1] = Line(f"{found[-1].latex} {first.latex}", found[-1].length + first.length)
        else:
            found += [first, *rows[1:]]
    return found
