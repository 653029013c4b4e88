"""Axes of the values that move: which of them are features, and which of these are contracted against another value.

An axis of features is made or contracted by weights.  Of the factors of a product, the one flows whose features live
on: an attention's values, not its pattern; a state, not the key that reads it; a stream, not its scale.
"""

from collections.abc import Iterable, Iterator, Sequence

from duat_jax.marking.graph import Labels, Node, ProgramGraph
from duat_jax.transform.parameters import (
    broadcast_dimensions_of,
    contraction_of,
    mixed_axes_of,
    output_features_of,
    permutation_of,
    reduces,
)
from duat_jax.transform.primitives import ELEMENTWISE, MIXES_AXES


class Axes:
    """Labels of axes: equal ones are joined, and each knows whether it is of features, and whether it is contracted."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._features: list[bool] = []
        self._contracted: list[bool] = []

    def new(self, features: bool = False) -> int:
        """Return a new label."""
        self._parent.append(len(self._parent))
        self._features.append(features)
        self._contracted.append(False)
        return len(self._parent) - 1

    def root(self, label: int) -> int:
        """Return the label that stands for all that a label was joined with."""
        while self._parent[label] != label:
            label = self._parent[label]
        return label

    def join(self, labels: Iterable[int | None]) -> int | None:
        """Make labels equal, and return the one that stands for all."""
        roots = sorted({self.root(label) for label in labels if label is not None})
        for other in roots[1:]:
            self._parent[other] = roots[0]
            self._features[roots[0]] |= self._features[other]
            self._contracted[roots[0]] |= self._contracted[other]
        return roots[0] if roots else None

    def note(self, label: int | None, *, features: bool = False, contracted: bool = False) -> None:
        """Note what became known of an axis."""
        if label is not None:
            self._features[self.root(label)] |= features
            self._contracted[self.root(label)] |= contracted

    def derived(self, labels: Iterable[int | None]) -> int:
        """Return a new label of features if one of some others is."""
        return self.new(any(self._features[self.root(label)] for label in labels if label is not None))

    def features(self, labels: Iterable[int | None]) -> frozenset[int]:
        """Return the labels of the features that live on: those that aren't contracted against another value."""
        roots = {self.root(label) for label in labels if label is not None}
        return frozenset(label for label in roots if self._features[label] and not self._contracted[label])


def label(graph: ProgramGraph, arguments: Sequence[Labels | None], axes: Axes) -> None:
    """Give every axis of every value that moves a label."""
    given = zip(graph.arguments, arguments, strict=True)
    labels = graph.labels = {v: names for v, names in given if names is not None}
    for node in graph.nodes:
        moving = [labels[ref] for ref in node.moving_operands() if ref in labels]
        if not moving or not graph.moving & set(node.results):
            continue
        if node.body is not None:
            _label_body(graph, node, labels, axes)
            continue
        for v in node.results:
            axis_names = _of_result(graph, node, labels, axes, graph.shape(v))
            labels[v] = [name if size > 1 else None for name, size in zip(axis_names, graph.shape(v), strict=True)]


def _of_result(
    graph: ProgramGraph, node: Node, labels: dict[int, Labels], axes: Axes, shape: tuple[int, ...]
) -> Labels:
    operands = [labels.get(ref) if isinstance(ref, int) else None for ref in node.operands]
    first = next(k for k in node.moving if operands[k] is not None)
    given, before = operands[first] or [], graph.shape(node.operands[first])
    equation, name = node.equation, node.name
    if equation is None or name in ELEMENTWISE or name in ("cumsum", "optimization_barrier"):
        rows = [names for names in operands if names is not None and len(names) == len(shape)]
        return [axes.join(names[axis] for names in rows) for axis in range(len(shape))]
    match name:
        case "dot_general":
            return _of_product(graph, node, operands, axes)
        case "conv_general_dilated":
            features = output_features_of(equation)
            return [axes.new(True) if axis == features else axes.derived([name]) for axis, name in enumerate(given)]
        case "transpose":
            return [given[axis] for axis in permutation_of(equation)]
        case "broadcast_in_dim":
            kept_names: Labels = [None] * len(shape)
            for axis, to in enumerate(broadcast_dimensions_of(equation)):
                kept_names[to] = given[axis] if before[axis] == shape[to] else None
            return kept_names
        case "squeeze":
            return [name for axis, name in enumerate(given) if axis not in mixed_axes_of(equation)]
        case "reshape":
            return _reshaped(axes, given, before, shape)
    if name in MIXES_AXES and reduces(equation):
        removed = mixed_axes_of(equation)
        if name == "reduce_sum":
            _note_contraction(graph, node, labels, axes, removed)
        return [name for axis, name in enumerate(given) if axis not in removed]
    if len(shape) == len(before):
        return [name if a == b else axes.derived([name]) for name, a, b in zip(given, before, shape, strict=True)]
    return [axes.derived(given) for _ in shape]


def _of_product(graph: ProgramGraph, node: Node, operands: list[Labels | None], axes: Axes) -> Labels:
    """Label the result of a `dot_general`: batch axes, then the free axes of both factors."""
    assert node.equation is not None
    contracted, batch = contraction_of(node.equation)
    both_move = None not in operands
    # An axis of weights that is left over is one of features.
    factors = [
        [axes.new(True) for _ in graph.shape(ref)] if names is None else names
        for names, ref in zip(operands, node.operands, strict=True)
    ]
    for pair in zip(*contracted, strict=True):
        together = axes.join(names[axis] for names, axis in zip(factors, pair, strict=True))
        axes.note(together, features=not both_move, contracted=both_move)
    shared = [
        axes.join(
            names[axis] for k, (names, axis) in enumerate(zip(factors, pair, strict=True)) if operands[k] is not None
        )
        for pair in zip(*batch, strict=True)
    ]
    free = [
        names[axis]
        for k, names in enumerate(factors)
        for axis in range(len(names))
        if axis not in (*contracted[k], *batch[k])
    ]
    return shared + free


def _note_contraction(
    graph: ProgramGraph, node: Node, labels: dict[int, Labels], axes: Axes, removed: tuple[int, ...]
) -> None:
    """Note which axes a sum over a product of two values that move contracts."""
    made = next((n for n in graph.ancestors(node.operands[0]) if n.name != "convert_element_type"), None)
    factors = [labels[ref] for ref in made.moving_operands() if ref in labels] if made and made.name == "mul" else []
    if len(factors) == 2 and factors[0] is not factors[1]:
        for axis in removed:
            if all(axis < len(names) and names[axis] is not None for names in factors):
                axes.note(factors[0][axis], contracted=True)


def _reshaped(axes: Axes, given: Labels, before: tuple[int, ...], after: tuple[int, ...]) -> Labels:
    """Label the axes of a reshaped value: an axis keeps its label where it is neither split nor merged."""
    reshaped: Labels = [None] * len(after)
    for olds, news in _groups(before, after):
        sources = [given[axis] for axis in olds if before[axis] > 1]
        wide = [axis for axis in news if after[axis] > 1]
        for axis in wide:
            reshaped[axis] = sources[0] if len(sources) == len(wide) == 1 else axes.derived(sources)
    return reshaped


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[range, range]]:
    """Yield the smallest runs of axes, before and after a reshape, that have the same number of entries."""
    if 0 in before:  # of nothing
        yield range(len(before)), range(len(after))
        return
    i = j = 0
    while i < len(before) or j < len(after):
        start, old, new = (i, j), 1, 1
        while old != new or (i, j) == start:
            if i < len(before) and (old <= new or j == len(after)):
                old, i = old * before[i], i + 1
            else:
                new, j = new * after[j], j + 1
        yield range(start[0], i), range(start[1], j)


def _label_body(graph: ProgramGraph, node: Node, labels: dict[int, Labels], axes: Axes) -> None:
    """Label the values in a loop's or a region's body, and its results."""
    assert node.body is not None
    body, (first, carries) = node.body, node.carries
    given: list[Labels | None] = []
    for k, (ref, inside) in enumerate(zip(node.operands, body.arguments, strict=True)):
        names = labels.get(ref) if isinstance(ref, int) else None
        if names is None and body.moves(inside):
            names = [axes.new() if size > 1 else None for size in body.shape(inside)]
        elif names is not None and k >= first + carries and node.name == "scan":
            names = names[1:]
        given.append(names)
    label(body, given, axes)
    for k, (v, ref) in enumerate(zip(node.results, body.results, strict=True)):
        names = body.labels.get(ref) if isinstance(ref, int) else None
        if k < carries and names is not None and (before := given[first + k]) is not None:
            names = [axes.join(pair) for pair in zip(names, before, strict=True)]
        stacked = [None] if node.name == "scan" and k >= carries else []
        if names is not None:
            labels[v] = [*stacked, *names]
