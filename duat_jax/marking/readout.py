"""Read-outs of which one activation has the whole value, so that nothing else has a part."""

from duat_jax.marking.graph import values_of
from duat_jax.marking.plan import SUMS_OF_TWO, Plan
from duat_jax.marking.products import SUMS
from duat_jax.marking.regions import region

SATURATES = frozenset(("exp", "exp2", "logistic", "tanh", "erf"))
"""Functions that make a probability, or a soft cap, of a logit."""


def advice_on_readout(plan: Plan) -> str | None:
    """Return what to read instead, where the result is one entry of one saturating activation; otherwise `None`.

    Args:
        plan: the plan of a function.
    """
    waiting = plan.flowing.intersection(values_of(plan.graph.results))
    while len(waiting) == 1:
        (value,) = waiting
        if value in plan.terms:
            names = SATURATES.intersection(node.name for node in region(plan.graph, value, plan.terms[value]))
            if not names:
                return None
            return (
                f"all of the result is one {min(names)}, and that term has the whole value, so that no input and no"
                " layer has a part: read what it is taken of, such as a logit instead of its probability"
            )
        node = plan.graph.producer.get(value)
        if node is None or node.action.kind != "linear" or node.name in SUMS | SUMS_OF_TWO | {"reduce_sum"}:
            return None
        waiting = values_of(node.operands[k] for k in node.action.flowing)
    return None
