"""Forward search for divisions by, and logarithms of, sums of exponentials.

A recognised softmax is split by a rule of its own.  The split of an unrecognised one depends on how it is written, the
more so the farther its exponents move.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from duat_jax.transform.definitions import Definitions
from duat_jax.transform.mark_places import Path
from duat_jax.transform.parameters import power_of
from duat_jax.transform.primitives import LINEAR

SUMS = frozenset(
    ("reduce_sum", "cumsum", "reduce_window_sum", "dot_general", "ragged_dot_general", "scatter-add", "psum", "reduce")
)
"""Primitives that sum entries of one operand."""

KEEPS_SUMS = (LINEAR.keys() - {"div"}) | {"select_n", "max", "clamp", "abs", "stop_gradient", "reduce"}
"""Primitives that keep a sum of exponentials up to a shift, a scale or a limit."""

KEEPS_MASKS = LINEAR.keys() | {"select_n", "max", "min", "reduce_max", "reduce_min", "stop_gradient"}
"""Primitives of which a result may be infinite where an operand is."""


class Exponentials(NamedTuple):
    """The exponentials that a value is computed from.

    Args:
        places: the paths at which they are computed; empty for a value without exponentials.
        summed: whether the value is a sum of several of them.
    """

    places: frozenset[Path] = frozenset()
    summed: bool = False


def joined(values: Iterable[Exponentials]) -> Exponentials:
    """Return the exponentials of several values together."""
    values = list(values)
    return Exponentials(frozenset[Path]().union(*(e.places for e in values)), any(e.summed for e in values))


def exponentials_of(
    equation: core.JaxprEqn, here: Path, operands: Sequence[Exponentials | None], several: bool
) -> Exponentials:
    """Return the exponentials that an equation's results are computed from."""
    name = equation.primitive.name
    if name in ("exp", "exp2"):
        return Exponentials(frozenset((here,)))
    if name not in KEEPS_SUMS and not (name == "div" and operands[1] is None):
        return Exponentials()
    exponential_operands = [operand for operand in operands if operand is not None and operand.places]
    adds = name in ("add", "add_any", "sub") and len(exponential_operands) > 1 and several
    places, summed = joined(exponential_operands)
    return Exponentials(places, bool(exponential_operands) and (summed or adds or name in SUMS))


def inverted_operand(equation: core.JaxprEqn) -> int | None:
    """Return the operand that an equation divides by or takes the logarithm of, or `None`."""
    if equation.primitive.name == "div":
        return 1
    return 0 if equation.primitive.name in ("log", "log1p", "log2") or (power_of(equation) or 0) < 0 else None


def is_masked(definitions: Definitions, jaxpr: core.Jaxpr, v: Any, moving: Container[Any]) -> bool:
    """Return whether a moving condition chooses between a variable's numbers and a constant that may be infinite."""
    condition, *cases = definitions.choice(v) or (None,)
    if not isinstance(condition, core.Var) or condition not in moving:
        return False
    roots = map(definitions.root, cases)
    return any(np.isinf(r.val).any() if isinstance(r, core.Literal) else r in jaxpr.constvars for r in roots)
