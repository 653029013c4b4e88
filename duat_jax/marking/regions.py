"""Activations: regions of elementwise operations with one value through which all that flows has to pass."""

from duat_jax.marking.graph import Node, ProgramGraph
from duat_jax.transform.parameters import reorders
from duat_jax.transform.primitives import ELEMENTWISE, KEEPS_PLACE

FAR = 1000.0
"""The cost from which on a value isn't affine in the argument with holds and terms alone."""
LONGEST = 300
"""The operations of the longest activation."""


def root_of(graph: ProgramGraph, value: int, cost: dict[int, float]) -> int | None:
    """Return the value of which another is an elementwise function: of all those, the one nearest to being affine."""
    shape, frontier, best = graph.shape(value), {value}, None
    for _ in range(LONGEST):
        latest = max(frontier)
        node = graph.producer.get(latest)
        if node is None or not keeps_entries(node):
            break
        operands = set(node.moving_operands())
        if any(graph.shape(other) != shape for other in (*node.results, *operands)):
            break
        frontier = (frontier - {latest}) | operands
        if len(frontier) == 1:
            (single,) = frontier
            nearer = best is None or int(cost.get(single, 0)) < int(cost.get(best, 0))
            if graph.is_float(single) and cost.get(single, 0) < FAR and nearer:
                best = single
    return best


def keeps_entries(node: Node) -> bool:
    """Return whether each entry of a result is computed from the same entry of the operands, where shapes are equal."""
    if node.equation is None or node.mark is not None or reorders(node.equation):
        return False
    return node.name in ELEMENTWISE or (node.name in KEEPS_PLACE and node.name != "transpose")


def region(graph: ProgramGraph, value: int, root: int) -> list[Node]:
    """Return the operations between an activation and its pre-activation, in order."""
    nodes: dict[int, Node] = {}
    waiting = [value]
    while waiting:
        v = waiting.pop()
        node = graph.producer[v] if v != root else None
        if node is not None and node.results[0] not in nodes:
            nodes[node.results[0]] = node
            waiting += node.moving_operands()
    return [nodes[v] for v in sorted(nodes)]
