"""Compute Figure 2 of the appendix: the parameters after every layer, in terms of their original values."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from sympy import MatrixExpr, sstr

from symbolic.audit.notation import S
from symbolic.audit.updates import paper_layer, paper_recursions
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal, normal_form
from symbolic.errors import SymbolicError
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.latex import typeset
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import check_depth, i, j

_HEADINGS = ("layer", "the papers' symbol", "here", "in original values")


class FigureRow(NamedTuple):
    """One parameter after one more layer.

    Args:
        layer: the number of layers.
        printed: the papers' symbol, which is the same before and after.
        updated: the letter of the closed form.
        value: its value, in the layers' own parameters and the activations `s_j`.
    """

    layer: int
    printed: Parameter
    updated: Parameter
    value: MatrixExpr


@dataclass(frozen=True)
class Figure:
    """The changes of all parameters, layer by layer.

    Args:
        rows: one for each parameter that a layer sets or changes.
        verified: whether the closed form with these values is the network of Eq. 30 at every depth shown.
    """

    rows: tuple[FigureRow, ...]
    verified: bool

    @property
    def note(self) -> str:
        """A note on the values: the network that they were compared with."""
        how = "is" if self.verified else "is NOT"
        return (
            f"s_j = σ(B_j x'_0 + c_j). With these values the closed form {how} the network of Eq. 30, at every depth."
        )

    def unicode(self) -> str:
        """Return a table as plain text, with a line between the layers."""
        table = [_HEADINGS, *((str(r.layer), *map(sstr, r[1:])) for r in self.rows)]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        lines = [
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in table
        ]
        rule = "─" * max(map(len, lines))
        numbered = list(zip(["", *(str(r.layer) for r in self.rows)], lines, strict=True))
        boxes = ["\n".join(line for _, line in box) for _, box in groupby(numbered, key=lambda pair: pair[0])]
        return f"\n{rule}\n".join([*boxes, self.note])

    def latex(self) -> str:
        """Return a table as LaTeX for a formula."""
        heads = " & ".join(rf"\text{{{heading}}}" for heading in _HEADINGS)
        boxes = [
            " \\\\\n".join(f"{r.layer} & {typeset(r.printed)} & {typeset(r.updated)} & {typeset(r.value)}" for r in box)
            for _, box in groupby(self.rows, key=lambda r: r.layer)
        ]
        return "\\begin{array}{clll}\n" + " \\\\ \\hline\n".join([heads, *boxes]) + "\n\\end{array}"

    def __str__(self) -> str:
        return self.unicode()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_latex_(self) -> str:
        return f"$$\n{self.latex()}\n$$"


def _recursions() -> tuple[Definition, ...]:
    """Return the recursions of Eq. 30, in which `W'_{i+1,2}` meets `W'_{i+1,1}`, with the activations named `s_j`."""
    sums = Definition(S.UAT(i), IndexedSum(S.C(j, i) * _activation(j), j, 1, i), (i,))
    return (*(rule for rule in paper_recursions() if rule.left.letter != "UAT"), sums)


def _activation(k: Any) -> Parameter:
    return S.vector("s", k)


def _parameters(layer: int) -> Iterator[tuple[Parameter, Parameter]]:
    """Yield the papers' symbol and ours for every parameter that one more layer sets or changes."""
    yield S.W(layer, 1), S.P(layer)
    yield S.b(layer, 3), S.q(layer)
    yield S.W(layer, 2), S.B(layer)
    yield S.b(layer, 2), S.c(layer)
    for k in range(1, layer + 1):
        yield S.W(k, 3), S.C(k, layer)


def figure_2(depth: int = 3) -> Figure:
    """Return how every parameter changes with every layer, in the values that the parameters had at first.

    Example:
        >>> print(figure_2(2).rows[5].updated, "=", figure_2(2).rows[5].value)
        P₂ = W′₂,₁ W′₁,₁
    """
    rules = _recursions()
    rows = [
        FigureRow(layer, printed, updated, normal_form(updated, rules).expression())
        for layer in range(1, check_depth(depth) + 1)
        for printed, updated in _parameters(layer)
    ]
    return Figure(tuple(rows), all(_is_the_network(rows, layer) for layer in range(1, depth + 1)))


def _is_the_network(rows: list[FigureRow], layer: int) -> bool:
    """Tell whether the closed form with the values of the rows is the network, after some layers."""
    values = {row.updated: row.value for row in rows}
    activations = tuple(Definition(_activation(k), _value_of(values, k)) for k in range(1, layer + 1))
    terms = (values[S.C(k, layer)] * _activation(k) for k in range(1, layer + 1))
    form = MatrixSum(values[S.P(layer)] * S.x(0), values[S.q(layer)], *terms)
    return equal(S.x(layer), form, (paper_layer(), *activations))


def _value_of(values: dict[Parameter, MatrixExpr], k: int) -> MatrixExpr:
    return S.activation(k).xreplace({p: values[p] for p in (S.B(k), S.c(k))})


def figure(number: int) -> Figure:
    """Return a figure of the papers' appendix by its number."""
    if number != 2:
        raise SymbolicError(f"there is nothing to compute in figure {number}: give 2")
    return figure_2()
