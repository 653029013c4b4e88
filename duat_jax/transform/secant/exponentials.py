"""Where a program divides by a sum of exponentials, or takes its logarithm: looked up forwards, through all programs.

A softmax that is recognised is split by a rule of its own.  Of one that isn't the split depends on how it is written,
and much so where exponents move far.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jax.extend import core

from duat_jax.transform.parameters import power_of
from duat_jax.transform.primitives import LINEAR
from duat_jax.transform.program import Path

SUMS = frozenset(
    ("reduce_sum", "cumsum", "reduce_window_sum", "dot_general", "ragged_dot_general", "scatter-add", "psum", "reduce")
)
"""What sums entries of one operand."""

KEEPS_SUMS = (LINEAR.keys() - {"div"}) | {"select_n", "max", "clamp", "abs", "stop_gradient", "reduce"}
"""What returns a sum of exponentials, shifted, scaled or limited at most, where an operand is one."""


class Exponentials(NamedTuple):
    """The exponentials that a value is made of.

    Args:
        places: where they are computed; none of a value that is made of other things.
        summed: whether the value is a sum of several of them.
    """

    places: frozenset[Path] = frozenset()
    summed: bool = False


def joined(several: Iterable[Exponentials]) -> Exponentials:
    """Return the exponentials of several values together.

    Args:
        several: those of each.
    """
    several = list(several)
    return Exponentials(frozenset[Path]().union(*(e.places for e in several)), any(e.summed for e in several))


def made_of(
    equation: core.JaxprEqn, here: Path, operands: Sequence[Exponentials | None], several: bool
) -> Exponentials:
    """Return the exponentials that an equation's results are made of.

    Args:
        equation: any equation but a call.
        here: where it stands.
        operands: those that its operands are made of; `None` of an operand that doesn't move.
        several: whether its operands aren't, entry by entry, functions of one value: `1 + exp(-x)` sums nothing.
    """
    name = equation.primitive.name
    if name in ("exp", "exp2"):
        return Exponentials(frozenset((here,)))
    if name not in KEEPS_SUMS and not (name == "div" and operands[1] is None):
        return Exponentials()
    made = [operand for operand in operands if operand is not None and operand.places]
    adds = name in ("add", "add_any", "sub") and len(made) > 1 and several
    places, summed = joined(made)
    return Exponentials(places, bool(made) and (summed or adds or name in SUMS))


def inverted_operand(equation: core.JaxprEqn) -> int | None:
    """Return which operand an equation divides by, or takes the logarithm of; `None` if it does neither.

    Args:
        equation: any equation.
    """
    if equation.primitive.name == "div":
        return 1
    return 0 if equation.primitive.name in ("log", "log1p", "log2") or (power_of(equation) or 0) < 0 else None
