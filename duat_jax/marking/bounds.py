"""Bounds of an activation, whatever its pre-activation: `[0, c]` makes a factor a gate."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from duat_jax.marking.graph import Node, ProgramGraph, Ref
from duat_jax.transform.parameters import power_of

Bounds = tuple[float, float]
UNBOUNDED = (-math.inf, math.inf)

INCREASING: dict[str, Callable[[float], float]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "erf": np.sign,
    "log": lambda x: np.log(max(x, 0)),
    "log1p": lambda x: np.log1p(max(x, -1)),
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "tanh": np.tanh,
}
"""Increasing functions of one number; of `erf` the values at ±∞ are enough."""

SAME = frozenset(
    ("broadcast_in_dim", "reshape", "squeeze", "transpose", "convert_element_type", "copy", "copy_p", "stop_gradient")
)
NOT_NEGATIVE = frozenset(("abs", "square", "sqrt", "integer_pow"))


def bounds(graph: ProgramGraph, value: int, root: int, region: Iterable[Node]) -> Bounds:
    """Return numbers between which a function of one value lies."""
    known: dict[int, Bounds] = {root: UNBOUNDED}

    def read(ref: Ref) -> Bounds:
        if isinstance(ref, int) and ref in known:
            return known[ref]
        entries = graph.constant(ref)
        return UNBOUNDED if entries is None or not entries.size else (float(entries.min()), float(entries.max()))

    with np.errstate(all="ignore"):
        for node in region:
            interval = _of(graph, node, [read(ref) for ref in node.operands])
            known |= dict.fromkeys(node.results, UNBOUNDED if np.isnan(interval).any() else interval)
    return known[value]


def _of(graph: ProgramGraph, node: Node, operands: list[Bounds]) -> Bounds:
    """Return bounds of a result from those of its operands."""
    (low, high), *further = operands
    if node.name in INCREASING:
        return float(INCREASING[node.name](low)), float(INCREASING[node.name](high))
    if node.name in SAME:
        return low, high
    if node.name in NOT_NEGATIVE:
        odd = node.name == "integer_pow" and node.equation is not None and (power_of(node.equation) or 0) % 2
        return UNBOUNDED if odd else (0.0, math.inf)
    match node.name, further:
        case "add" | "add_any", [other]:
            return low + other[0], high + other[1]
        case "sub", [other]:
            return low - other[1], high - other[0]
        case "neg", _:
            return -high, -low
        case "mul", [other]:
            return _product((low, high), other)
        case "div", [other] if other[0] > 0:
            return _product((low, high), (1 / other[1], 1 / other[0]))
        case "max", [other]:
            return max(low, other[0]), max(high, other[1])
        case "min", [other]:
            return min(low, other[0]), min(high, other[1])
        case "clamp", [_, above]:  # clamp(least, x, most)
            return low, above[1]
        case "erfc", _:
            return 0.0, 2.0
        case "select_n", [first, *_] if _asks_for_nan(graph, node):
            return first
        case "select_n", cases:
            return min(case[0] for case in cases), max(case[1] for case in cases)
    return UNBOUNDED


def _product(a: Bounds, b: Bounds) -> Bounds:
    corners = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(corners), max(corners)


def _asks_for_nan(graph: ProgramGraph, node: Node) -> bool:
    """Return whether a choice depends on whether a value is NaN: `x != x`."""
    condition = graph.producer.get(node.operands[0]) if isinstance(node.operands[0], int) else None
    return condition is not None and condition.name == "ne" and condition.operands[0] == condition.operands[1]
