"""A result as it is shown: plain data that every renderer takes, whatever the kind of result.

The renderers are functions of it: `terminal.py`, `picture.py`, `heat_map.py` and `page/`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.display.page.graph_view import GraphView, MovesView
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import SeenImage
from duat_jax.inputs.labels import Prediction

DIFFERENCE = "A − B"
"""The label of a difference: the input or model in question, minus its reference."""

RANKED = 100
"""The largest number of rows of a ranked table; a terminal shows the first ones."""

DISCONTINUITIES = "Discontinuities: what has no slope between the two"
"""The title of the list of discontinuities."""


class ModelRun(NamedTuple):
    """A run of the model.

    Args:
        name: the input, or the model.
        value: the number there.
        predictions: the most probable outputs.
    """

    name: str
    value: float
    predictions: tuple[Prediction, ...] = ()


class TokenRow(NamedTuple):
    """A row of the table of tokens.

    Args:
        name: its title.
        parts: a number for each token, `[tokens]`.
        layer: the layer whose neurons and heads the row has; absent where they can't be edited by it.
    """

    name: str
    parts: Float[np.ndarray, "tokens"]
    layer: int | None = None


class Colouring(NamedTuple):
    """Numbers that colour the tokens of the text.

    Args:
        name: what they are.
        note: what they mean, in one sentence.
        parts: a number for each token, `[tokens]`.
    """

    name: str
    note: str
    parts: Float[np.ndarray, "tokens"]


class UnitParts(NamedTuple):
    """Numbers of neurons or heads at every token.

    Args:
        label: the layer, or the edit, that they belong to.
        row: the index of the row whose cells they are parts of; absent of none.
        columns: their parts, and further numbers, each `[tokens, units]`.
        ids: the number of each unit.
    """

    label: str
    row: int | None
    columns: tuple[Float[np.ndarray, "tokens units"], ...]
    ids: Sequence[int]


class UnitTable(NamedTuple):
    """Units of one kind: neurons or heads.

    Args:
        name: `"neuron"`, `"head"` or `"unit"`.
        columns: the names of their numbers, the part first.
        note: what they sum to, in one sentence.
        others: the name of what a cell has beside them; absent if they don't sum to it, empty if nothing.
        parts: the numbers, in the order of computation.
    """

    name: str
    columns: tuple[str, ...]
    note: str
    others: str | None
    parts: tuple[UnitParts, ...]


class NamedParts(NamedTuple):
    """Parts that belong to no token, by name.

    Args:
        title: what they are.
        entries: name and part, the largest first, without zeros.
    """

    title: str
    entries: tuple[tuple[str, float], ...]


Cell = float | int | str | None
Cells = tuple[Any, ...]
"""A row of a table, each entry a `Cell`."""


class Table(NamedTuple):
    """A table of labels and numbers.

    Args:
        title: above it; empty for none.
        columns: the titles of the columns.
        rows: the cells: a float is a signed part, an int a place, a string a label, `None` nothing.
        total: the last row, if there is one.
        note: what the columns are.
        labels: the number of columns that stay where a table is too wide for all.
        ranked: whether the rows are ranked, so that the first ones can stand for all.
        drawn: the columns that are a panel of the picture, by the names of the rows.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    total: Cells | None = None
    note: str = ""
    labels: int = 1
    ranked: bool = False
    drawn: tuple[str, ...] = ()


class Map(NamedTuple):
    """Numbers on two axes.

    Args:
        title: what they are.
        numbers: the numbers, `[rows, columns]`.
        rows: the labels of the rows; none where the map lies over an image.
        columns: the labels of the columns.
        axes: the names of the two axes.
        whole: whether it alone sums to the value; else all such maps and what is added do.
    """

    title: str
    numbers: Float[np.ndarray, "rows columns"]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    axes: tuple[str, str] = ("", "")
    whole: bool = False


class Curves(NamedTuple):
    """Curves over one axis.

    Args:
        places: the name of the axis.
        number: what the curves are of.
        curves: by label, the places and the numbers there.
    """

    places: str
    number: str
    curves: Mapping[str, tuple[Any, Float[np.ndarray, "places"]]]


class Largest(NamedTuple):
    """The largest parts of a result, which its headline names.

    Args:
        token: the index of the token.
        token_part: its part.
        layer: the layer of the token's part, or of the unit.
        unit: the number of the head or neuron.
        unit_part: its part.
    """

    token: int | None = None
    token_part: float | None = None
    layer: int | None = None
    unit: int | None = None
    unit_part: float | None = None


@dataclass(frozen=True, kw_only=True)
class View:
    """A result as it is shown.

    Args:
        kind: the kind of result.
        target: what is explained, in words.
        headline: what was found, in one sentence; empty for a kind of result that has none.
        largest: the largest parts.
        value: the number that the parts sum to.
        value_name: its name.
        completeness: the value, the sum of all parts, error, tolerance and verdict; absent where parts need not sum.
        exact: what is exact and what is held, in one sentence.
        runs: the runs of the model; of several, the last row is the difference.
        output: the number of the token or class that is read; absent if none is.
        position: the index of the token at which it is read; absent if it is read at none.
        tokens: the text, token by token, with white space visible.
        others: the tokens of the other text; absent without one.
        line_ends: the indices of tokens after which a line ends.
        heading: the title of the table of rows and tokens.
        rows: its rows.
        row_sums: whether each row sums to the value; else all rows together with `added` do.
        moves: what heads move from token to token, by the row that they lead to; empty if it isn't known.
        later: what each row lacks of the value where `row_sums`, in words; empty if nothing is lacking.
        colourings: the ways in which the text can be coloured, as far as they are known.
        later_colourings: computes further ones, for what shows them.
        units: neurons and heads.
        added: lists of parts that belong to no token.
        tables: tables of the kind of result.
        maps: numbers on two axes.
        curves: curves of the picture.
        sums: further sums, by name.
        notes: caveats on the parts.
        image: what was read, if it is an image; the tokens are then that of the whole and the patches.
        graph: the streams, where they are known.
    """

    kind: str
    target: str
    headline: str = ""
    largest: Largest = field(default_factory=Largest)
    value: float
    value_name: str
    completeness: Completeness | None
    exact: str
    runs: tuple[ModelRun, ...] = ()
    output: int | None = None
    position: int | None = None
    tokens: tuple[str, ...] = ()
    others: tuple[str, ...] | None = None
    line_ends: tuple[int, ...] = ()
    heading: str = "Every layer at every token"
    rows: tuple[TokenRow, ...] = ()
    row_sums: bool = False
    moves: tuple[MovesView | None, ...] = ()
    later: str = ""
    colourings: tuple[Colouring, ...] = ()
    later_colourings: Callable[[], tuple[Colouring, ...]] = tuple
    units: tuple[UnitTable, ...] = ()
    added: tuple[NamedParts, ...] = ()
    tables: tuple[Table, ...] = ()
    maps: tuple[Map, ...] = ()
    curves: tuple[Curves, ...] = ()
    sums: Mapping[str, Completeness] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    image: SeenImage | None = None
    graph: GraphView | None = None

    @cached_property
    def all_colourings(self) -> tuple[Colouring, ...]:
        """All ways in which the text can be coloured."""
        return (*self.colourings, *self.later_colourings())

    @property
    def parts(self) -> Float[np.ndarray, "rows tokens"]:
        """The table of rows and tokens."""
        return np.array([row.parts for row in self.rows], float).reshape(len(self.rows), len(self.tokens))


def compared(first: ModelRun, second: ModelRun) -> tuple[ModelRun, ModelRun]:
    """Return two runs named A and B, whose difference A − B is split."""
    return first._replace(name=f"A: {first.name}"), second._replace(name=f"B: {second.name}")


def named_parts(title: str, entries: Iterable[tuple[object, float]]) -> tuple[NamedParts, ...]:
    """Return a list of the entries that aren't zero, or none if all are."""
    parts = sorted(((str(name), float(part)) for name, part in entries if part), key=lambda entry: -abs(entry[1]))
    return (NamedParts(title, tuple(parts)),) if parts else ()


def line_ends(tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the tokens after which a line of the text ends."""
    return tuple(index for index, token in enumerate(tokens) if token.endswith("\n"))


def largest(entries: Sequence[tuple[str, float]], count: int) -> list[tuple[str, float]]:
    """Return the largest entries by size, without zeros, and the sum of all others.

    Example:
        >>> largest([("a", 1.0), ("b", -3.0), ("c", 0.5)], 1)
        [('b', -3.0), ('all others', 1.5)]
    """
    parts = sorted((entry for entry in entries if entry[1]), key=lambda entry: -abs(entry[1]))
    remainder = [("all others", sum(part for _, part in parts[count:]))] if parts[count:] else []
    return [*parts[:count], *remainder]


def sides(first: str, reference: str) -> str:
    """Return the two sides of a difference in words, the one that is asked about first.

    Example:
        >>> sides("the text", "the other text")
        'A − B: the text − the other text'
    """
    return f"{DIFFERENCE}: {first} − {reference}"


def numbers(array: Float[np.ndarray, "*axes"]) -> Any:
    """Return numbers as nested lists, each with the fewest digits that give the same number of its dtype.

    Example:
        >>> numbers(np.array([0.1, -3.0], np.float32))
        [0.1, -3.0]
    """
    return np.asarray(array).astype("U32").astype(np.float64).tolist()
