"""The data of a page: plain, made from a result and read by `page.js`."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from duat_jax.display.examples import Example, Examples
from duat_jax.display.page.graph_view import GraphView
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.labels import Prediction
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.vocabulary.token import written_label

FORMAT = 2
"""The version of the data."""

TOP = 8
"""The number of the largest neurons or heads that a page has of a cell; the others stand in it as their sum."""


class Said(msgspec.Struct):
    """The predictions of the model on one input.

    Args:
        name: which input.
        value: the number that is asked for.
        predictions: the most probable outputs and their probabilities.
    """

    name: str
    value: float
    predictions: list[tuple[str, float]]


class Colouring(msgspec.Struct):
    """Numbers that colour the tokens of the text.

    Args:
        name: what they are.
        note: what they mean, in one sentence.
        parts: a number for each token.
    """

    name: str
    note: str
    parts: list[float]


class Units(msgspec.Struct):
    """The neurons or the heads of one row, at every token the largest ones.

    Args:
        top: for each token the largest ones: index, and then the numbers that `UnitsKind` names, the part first.
        rest: for each token the sum of the others' parts.
    """

    top: list[list[list[float]]]
    rest: list[float]


class UnitsKind(msgspec.Struct):
    """The description of the neurons or of the heads of a cell.

    Args:
        name: `"neuron"` or `"head"`.
        columns: the names of their numbers.
        note: what they sum to, in one sentence.
        others: the name of what the cell has beside them; absent if they don't sum to it, empty if nothing.
    """

    name: str
    columns: list[str]
    note: str
    others: str | None


class Row(msgspec.Struct):
    """A row of the table.

    Args:
        name: its title.
        parts: a number for each token.
        units: for each kind of units those of the row; absent where it has none.
        layer: the layer of the units; absent where they can't be changed by it.
    """

    name: str
    parts: list[float]
    units: list[Units | None]
    layer: int | None = None


class Named(msgspec.Struct):
    """A list of named numbers.

    Args:
        title: what they are.
        entries: name and number, the largest first.
    """

    title: str
    entries: list[tuple[str, float]]


class EffectView(msgspec.Struct):
    """The effect of one change on the number.

    Args:
        name: the change.
        frozen: predicted from the run as it is, everything else held.
        part: its part of what happened.
        alone: measured, the model run again with this change alone; absent of what is no change.
        contrast: predicted by a contrast with the text that the values are from; absent without one.
    """

    name: str
    frozen: float | None
    part: float
    alone: float | None
    contrast: float | None = None


class View(msgspec.Struct, kw_only=True):
    """One result on a page.

    Args:
        kind: the kind of result.
        target: what is explained, in words.
        output: the number of the token or class that is read; absent if none is.
        exact: what is exact and what is held, in one sentence.
        value_name: what the parts sum to.
        completeness: the value, the sum of all parts, error, tolerance and verdict.
        said: what the model says on each input.
        tokens: the text, token by token, with white space visible.
        others: the tokens of the other text; absent without one.
        line_ends: the indices of tokens after which a line ends.
        colourings: the ways in which the text can be coloured.
        rows: the rows of the table.
        row_sums: whether each row sums to the value; else all rows together with `added` do.
        beside: what each row lacks of the value where `row_sums`, in words; empty if nothing is lacking.
        kinds: the kinds of units of the rows.
        added: lists of what isn't at a token.
        notes: what to know of the parts.
        heading: the title of the table.
        effects: what each change did, of an intervention.
        graph: the streams, where they are known.
        examples: by layer and index, such as `"3:17"`, texts in which a neuron is strong.
    """

    kind: str
    target: str
    output: int | None
    exact: str
    value_name: str
    completeness: dict[str, Any]
    said: list[Said]
    tokens: list[str]
    others: list[str] | None
    line_ends: list[int]
    colourings: list[Colouring]
    rows: list[Row]
    row_sums: bool
    beside: str
    kinds: list[UnitsKind]
    added: list[Named]
    notes: list[str]
    heading: str = "Every layer at every token"
    effects: list[EffectView] = []
    graph: GraphView | None = None
    examples: dict[str, list[Example]] = {}


class Page(msgspec.Struct):
    """The content of a page.

    Args:
        views: one or several, of which one is shown.
        format: the version of the data.
    """

    views: list[View]
    format: int = FORMAT


def numbers(array: Float[np.ndarray, "*axes"]) -> Any:
    """Return numbers as nested lists, each with the fewest digits that give the same number of its dtype.

    Args:
        array: the numbers.

    Example:
        >>> numbers(np.array([0.1, -3.0], np.float32))
        [0.1, -3.0]
    """
    return array.astype("U32").astype(np.float64).tolist()


def largest_units(*columns: Float[np.ndarray, "tokens units"]) -> Units:
    """Return at every token the units with the largest parts, and the sum of the others.

    Args:
        columns: the parts, and further numbers of each unit.
    """
    parts = columns[0]
    most = min(TOP, parts.shape[-1])
    largest = np.argpartition(-np.abs(parts), most - 1, axis=-1)[:, :most]
    order = np.argsort(-np.abs(np.take_along_axis(parts, largest, -1)), axis=-1, kind="stable")
    chosen = np.take_along_axis(largest, order, -1)
    top = [numbers(np.take_along_axis(column, chosen, -1)) for column in columns]
    rest = parts.copy()
    np.put_along_axis(rest, chosen, 0, -1)
    return Units(
        [
            [[unit, *entry] for unit, *entry in zip(indices, *entries, strict=True)]
            for indices, *entries in zip(chosen.tolist(), *top, strict=True)
        ],
        numbers(rest.sum(-1)),
    )


def largest(entries: Sequence[tuple[str, float]], count: int) -> list[tuple[str, float]]:
    """Return the largest entries by size, without zeros, and the sum of all others.

    Args:
        entries: name and number.
        count: how many.

    Example:
        >>> largest([("a", 1.0), ("b", -3.0), ("c", 0.5)], 1)
        [('b', -3.0), ('all others', 1.5)]
    """
    parts = sorted((entry for entry in entries if entry[1]), key=lambda entry: -abs(entry[1]))
    others = [("all others", sum(part for _, part in parts[count:]))] if parts[count:] else []
    return [*parts[:count], *others]


def named(title: str, entries: Iterable[tuple[str, float]]) -> list[Named]:
    """Return a list of the entries that aren't zero, or none if all are.

    Args:
        title: what they are.
        entries: name and number.
    """
    found = sorted(((name, float(value)) for name, value in entries if value), key=lambda entry: -abs(entry[1]))
    return [Named(title, found)] if found else []


def said(name: str, value: float, predictions: Sequence[Prediction]) -> Said:
    """Return what the model says on one input.

    Args:
        name: which input.
        value: the number that is asked for.
        predictions: the most probable outputs.
    """
    return Said(name, float(value), [(written_label(text), float(probability)) for text, probability in predictions])


def output_of(target: TargetDescription) -> int | None:
    """Return the number of the output that a target reads.

    Args:
        target: the target.
    """
    return None if target.output is None else target.output.id


def completeness_of(completeness: Completeness) -> dict[str, Any]:
    """Return a completeness as plain data.

    Args:
        completeness: of the result.
    """
    return {"value": float(completeness.value), **completeness.as_dict()}


def line_ends(tokens: Sequence[str]) -> list[int]:
    """Return the indices of the tokens after which a line of the text ends.

    Args:
        tokens: the text's tokens, readable.
    """
    return [index for index, token in enumerate(tokens) if token.endswith("\n")]


def with_examples(view: View, examples: Examples | None) -> View:
    """Return what a page shows, with the texts in which its neurons are strongest.

    Args:
        view: what the page shows.
        examples: of the model; the page has none if absent.
    """
    if examples is None:
        return view
    units = {
        (row.layer, int(unit))
        for row in view.rows
        for kind, of_kind in zip(view.kinds, row.units, strict=False)
        if kind.name == "neuron" and of_kind is not None and row.layer is not None
        for top in of_kind.top
        for unit, *_ in top
    }
    found = {f"{layer}:{unit}": examples.of(layer, unit) for layer, unit in sorted(units)}
    return msgspec.structs.replace(view, examples={name: texts for name, texts in found.items() if texts})
