"""Residual streams: sums through which everything that depends on the argument has to pass, with a term between two.

Of several arguments, such as an encoder's text and its decoder's, a sum and what is carried beside it to later layers.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from duat_jax.marking.graph import Node, ProgramGraph
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Site

STREAM, CARRIED = "stream", "carried"
"""The points of one of several streams, and of each that is carried beside it to later operations."""


class ResidualSums(NamedTuple):
    """The sums of a graph through which everything that depends on its arguments passes.

    Args:
        streams: the values that are residual streams, the argument among them where it is one.
        carried: of a sum that is one of several streams, the others, which later operations read.
    """

    streams: set[int]
    carried: dict[int, tuple[int, ...]]


def residual_sums(
    graph: ProgramGraph, flowing: Collection[int], terms: Collection[int], bodies: Mapping[Node, Any]
) -> ResidualSums:
    """Return the residual streams of a graph, and those beside them of a graph of several arguments."""
    frontier: set[int] = {ref for ref in graph.results if isinstance(ref, int) and graph.moves(ref)}
    moving = [v for v in graph.arguments if graph.moves(v)]
    sums: dict[int, tuple[int, ...]] = {}
    while frontier:
        latest = max(frontier)
        node = graph.producer.get(latest)
        if node is None:
            break
        others = tuple(sorted(frontier - {latest}))
        arrays = all(graph.is_float(v) and len(graph.shape(v)) > 1 for v in frontier)
        if latest in flowing and arrays and (len(moving) > 1 or not others) and _is_sum(graph, latest):
            sums[latest] = others
        frontier = frontier.difference(node.results).union(node.moving_operands())
    ends = sorted([*terms, *(node.results[0] for node, plan in bodies.items() if plan.terms)])

    def after_terms(sums: Iterable[int]) -> list[int]:
        """Return the sums that have a term between them and the one before."""
        chosen: list[int] = []
        for value in sums:
            before = chosen[-1] if chosen else -1
            if any(before < term <= value for term in ends):
                chosen.append(value)
        return chosen

    streams = after_terms(v for v in reversed(sums) if not sums[v])
    if streams and len(moving) == 1 and graph.shape(moving[0]) == graph.shape(streams[0]):
        streams.append(moving[0])
    return ResidualSums(set(streams), {v: sums[v] for v in after_terms(v for v in reversed(sums) if sums[v])})


def streams_together(points: Iterable[Key]) -> list[list[Key]]:
    """Return the points that carry everything together, in their order: a stream, and what is carried beside it."""
    together: list[list[Key]] = []
    for key in points:
        if key.name == STREAM:
            together.append([key])
        elif key.name == CARRIED and together:
            together[-1].append(key)
    return together


def rows_of_streams(sites: Iterable[Site], known: Collection[Site]) -> list[list[Site]]:
    """Return the marks that carry everything together after the embedding and after each layer, in this order.

    A layer's last stream stands for it; one of several streams stands together with those that are carried beside it,
    if all of them are known.
    """
    sites = list(sites)
    points = {site.key: site for site in sites if site.kind == marks.POINT}
    together = [[points[key] for key in keys] for keys in streams_together(points)]
    alone = [[site] for site in sites if site.kind == marks.STREAM]
    every = [row for row in (*together, *alone) if {*row} <= {*known}]
    of_layers = {layer: row for row in every if (layer := row[0].key.layer) is not None}
    outside = [row for row in alone if {*row} <= {*known} and row[0].key.layer is None]
    return [*outside, *(of_layers[layer] for layer in sorted(of_layers))]


def layer_before(row: int, key: Key) -> int | None:
    """Return the layer after which a row of streams is; without a layer's scope they are counted from the embedding."""
    return key.layer if key.layer is not None or not row else row - 1


def _is_sum(graph: ProgramGraph, value: int) -> bool:
    """Return whether a value is the sum of two that move, computed here or in a rematerialised region."""
    node = graph.producer.get(value)
    if node is None or node.body is None or node.name == "scan":
        return node is not None and node.name == "add" and len(node.moving) == 2
    body, result = node.body, node.body.results[node.results.index(value)]
    while (
        isinstance(result, int) and (last := body.producer.get(result)) and last.name == "add" and len(last.moving) == 1
    ):
        (result,) = last.moving_operands()  # a bias is added after the sum
    return isinstance(result, int) and _is_sum(body, result)


def layered_carry(graph: ProgramGraph, node: Node, flowing: Collection[int], terms: Collection[int]) -> int | None:
    """Return the carry that is the stream of a scan over layers: the weights are taken apart, and one carry flows."""
    first, carries = node.carries
    stacked = node.operands[first + carries :]
    carry = [k for k in range(carries) if node.body is not None and node.body.arguments[first + k] in flowing]
    over_layers = terms and stacked and not any(map(graph.moves, stacked))
    return carry[0] if over_layers and len(carry) == 1 else None
