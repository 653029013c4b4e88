"""Residual streams: sums through which everything that depends on the argument has to pass, with a term between two."""

from collections.abc import Collection, Mapping
from typing import Any

from duat_jax.marking.graph import Node, ProgramGraph


def residual_sums(
    graph: ProgramGraph, flowing: Collection[int], terms: Collection[int], bodies: Mapping[Node, Any]
) -> set[int]:
    """Return the values of a graph that are residual streams, the argument among them where it is one."""
    frontier, sums = {ref for ref in graph.results if isinstance(ref, int) and graph.moves(ref)}, []
    while frontier:
        latest = max(frontier)
        node = graph.producer.get(latest)
        if node is None:
            break
        if frontier == {latest} and latest in flowing and len(graph.shape(latest)) > 1 and _is_sum(graph, latest):
            sums.append(latest)
        frontier = frontier.difference(node.results).union(node.moving_operands())
    ends = sorted([*terms, *(node.results[0] for node, plan in bodies.items() if plan.terms)])
    streams: list[int] = []
    for value in reversed(sums):
        before = streams[-1] if streams else -1
        if any(before < term <= value for term in ends):
            streams.append(value)
    moving = [v for v in graph.arguments if graph.moves(v)]
    if streams and len(moving) == 1 and graph.shape(moving[0]) == graph.shape(streams[0]):
        streams.append(moving[0])
    return set(streams)


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
