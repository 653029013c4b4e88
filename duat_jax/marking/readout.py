"""Read-outs of which saturating activations have the whole value, so that nothing else has a part."""

import math

from duat_jax.marking.bounds import bounds
from duat_jax.marking.graph import values_of
from duat_jax.marking.plan import MarkingPlan
from duat_jax.marking.products import SUMS
from duat_jax.marking.regions import region

EXPONENTIALS = frozenset(("exp", "exp2"))
SATURATES = EXPONENTIALS | {"logistic", "tanh", "erf"}
"""Functions that make a probability, or a soft cap, of a logit."""


def advice_on_readout(plan: MarkingPlan) -> str | None:
    """Return what to read instead, where the result is a sum of saturating activations alone; otherwise `None`."""
    # These lie between two numbers, or are exponentials: SiLU, which has one in it, isn't one of them.
    waiting, saturating = plan.flowing.intersection(values_of(plan.graph.results)), set[str]()
    while waiting:
        value = waiting.pop()
        if value in plan.terms:
            nodes = region(plan.graph, value, plan.terms[value])
            names = SATURATES.intersection(node.name for node in nodes)
            limits = bounds(plan.graph, value, plan.terms[value], nodes)
            if not names or not (nodes[-1].name in EXPONENTIALS or all(map(math.isfinite, limits))):
                return None
            saturating.add(min(names))
            continue
        node = plan.graph.producer.get(value)
        if node is None or node.action.kind != "linear" or node.name in SUMS:
            return None
        waiting |= values_of(node.operands[k] for k in node.action.flowing)
    if not saturating:
        return None
    return (
        f"all of the result is {' and '.join(sorted(saturating))}, and such terms have the whole value, so that no"
        " input and no layer has a part: read what they are taken of, such as a logit or a log-probability instead of a"
        " probability"
    )
