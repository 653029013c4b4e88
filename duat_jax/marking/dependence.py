"""Dependence: which values of a graph move with the argument."""

from collections.abc import Sequence

from duat_jax.marking.graph import Node, ProgramGraph
from duat_jax.transform import marks
from duat_jax.transform.primitives import LINEAR, ONE

LOOKED_UP = ("gather", "dynamic_slice")


def depend(graph: ProgramGraph, moving: Sequence[bool]) -> list[bool]:
    """Find the values that move with the argument, and return which results do."""
    # A held value doesn't move, nor what is looked up by a moving index in something that doesn't: there the choice is
    # held, and what is looked up is a constant. What is multiplied by zero doesn't move either.
    graph.moving = {v for v, moves in zip(graph.arguments, moving, strict=True) if moves}
    for node in graph.nodes:
        node.moving = tuple(k for k, ref in enumerate(node.operands) if graph.moves(ref))
        fixed = [ref for k, ref in enumerate(node.operands) if k not in node.moving]
        if node.moving and LINEAR.get(node.name) == ONE and any(map(graph.is_zero, fixed)):
            node.moving = ()
            graph.zeros |= set(node.results)
        elif node.moving and node.name in LOOKED_UP and 0 not in node.moving:
            graph.chosen |= set(node.results)
        elif not node.moving:
            if any(ref in graph.chosen for ref in node.operands if isinstance(ref, int)):
                graph.chosen |= set(node.results)
        elif node.body is not None:
            _depend_in_body(graph, node)
        elif node.mark is None or node.mark["kind"] != marks.HOLD:
            graph.moving |= set(node.results)
    return [graph.moves(ref) for ref in graph.results]


def _depend_in_body(graph: ProgramGraph, node: Node) -> None:
    """Join what moves over all steps of a loop."""
    assert node.body is not None
    first, carries = node.carries
    moving = [graph.moves(ref) for ref in node.operands]
    while True:
        results = depend(node.body, moving)
        carried = [a or b for a, b in zip(moving[first : first + carries], results, strict=False)]
        if carried == moving[first : first + carries]:
            break
        moving[first : first + carries] = carried
    graph.moving |= {v for v, moves in zip(node.results, [*carried, *results[carries:]], strict=True) if moves}
