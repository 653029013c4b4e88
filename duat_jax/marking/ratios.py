"""Functions of one value that are held ratios, `f(z) = (f(z) / z) z`, and no terms: soft caps `c tanh(z / c)`."""

import numpy as np

from duat_jax.marking.graph import Node, ProgramGraph, values_of
from duat_jax.marking.regions import region


def soft_capped(graph: ProgramGraph, node: Node) -> int | None:
    """Return the value `z` of which an operation computes `c tanh(z / c)`, `c > 1`; `None` if it doesn't."""
    slope, limit, value = 1.0, None, node.results[0]
    while (made := graph.producer.get(value)) is not None and len(made.moving) == 1:
        if made.name == "tanh" and limit is None:
            limit = slope
        elif (factor := _constant_factor(graph, made)) is not None:
            slope *= factor
        elif made.name != "convert_element_type":
            break
        (value,) = made.moving_operands()
        if limit is not None and abs(slope - 1) <= 4 * float(np.finfo(np.float32).eps):
            return value if limit > 1 and graph.is_float(value) else None
    return None


def _constant_factor(graph: ProgramGraph, node: Node) -> float | None:
    """Return the number by which an operation multiplies; `None` of any other."""
    (moving,) = node.moving
    if node.name not in ("mul", "div") or (node.name == "div" and moving == 1):
        return None
    entries = graph.constant(node.operands[1 - moving])
    if entries is None or not entries.size or not entries.flat[0] or np.any(entries != entries.flat[0]):
        return None
    return float(entries.flat[0]) if node.name == "mul" else 1 / float(entries.flat[0])


def multiplied_by_ratio(graph: ProgramGraph, node: Node, root: int) -> int | None:
    """Return the operand `z` of a product `z (f(z) / z)`, which may have another divisor at zero."""
    if node.name != "mul" or root not in node.operands:
        return None
    k = node.operands.index(root)
    other = node.operands[1 - k]
    if not isinstance(other, int) or other == root:
        return None
    divisors = values_of(n.operands[1] for n in region(graph, other, root) if n.name == "div")
    guarded = [made.operands[1:] for d in divisors if (made := graph.producer.get(d)) and made.name == "select_n"]
    return k if root in divisors or any(root in cases for cases in guarded) else None
