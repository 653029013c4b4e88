"""Split the change of a number along a training run over weights and segments."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import DuatError, NotFinite
from duat_jax.forms.split import Split, split_between
from duat_jax.processes import on_host
from duat_jax.training.over_weights.result import WeightLedger
from duat_jax.training.over_weights.seam import require_alike
from duat_jax.training.update import Weights, named_arrays

Number = Callable[[Weights], Float[Array, ""]]
"""From weights to one number, such as a loss on held-out text."""

KEPT = 8
"""The number of functions whose secants are kept compiled."""


@lru_cache(maxsize=KEPT)
def _split_of(number: "Number") -> Callable[[Weights, Weights], Split]:
    """Return what splits a number over weights, with its multiplier; traced once for weights of one shape."""
    return jax.jit(split_between(number, lambda secant: (secant.parts, secant.multiplier)))


def segment(number: "Number", before: Weights, after: Weights, when: str) -> tuple[WeightLedger, Weights]:
    """Split a number's change over one segment: any number of steps."""
    split = _split_of(number)(after, before)
    of_weights, multiplier = split.parts
    named, values = named_arrays(after), np.stack(on_host(split.values[::-1]))
    require_finite(values[1], when)
    parts: dict[str, Any] = dict(zip(named, on_host(jax.tree.leaves(of_weights)), strict=True))
    sums = {name: part.sum(dtype=np.float64)[None] for name, part in parts.items()}
    jumps = np.array([sum(map(float, split.discontinuities.values()), 0.0)])
    # Of a segment the sums over arrays are kept: whether a wrong one would show is asked of these.
    largest = max(float(abs(each[0])) for each in (*sums.values(), jumps))
    completeness = split.completeness._replace(largest=jnp.asarray(largest, values.dtype)).on_host()
    return WeightLedger(named, values, parts, sums, jumps, (completeness,), named_arrays(before)), multiplier


def begin(number: "Number", weights: Weights) -> WeightLedger:
    """Begin a ledger: three lines in any training loop.

    Args:
        number: the number, a pure function of the weights.
        weights: the first weights, a pytree of floats.

    Returns:
        A ledger without segments.

    Raises:
        DuatError: if the weights aren't arrays of floats, or the number isn't a real scalar.
        NotFinite: if the number isn't finite.

    Example:
        >>> import jax.numpy as jnp
        >>> loss = lambda w: (w["a"] * w["b"]) ** 2
        >>> ledger = begin(loss, {"a": jnp.array(1.0), "b": jnp.array(1.0)})
        >>> ledger = follow(loss, ledger, {"a": jnp.array(0.5), "b": jnp.array(1.0)})  # after some steps
        >>> ledger = follow(loss, ledger, {"a": jnp.array(0.5), "b": jnp.array(2.0)})  # and some more
        >>> ledger.difference, {name: part.tolist() for name, part in ledger.sums.items()}
        (0.0, {'a': [-0.75, 0.0], 'b': [0.0, 0.75]})

    Source: the secant of `duat.secant`, between weights; with the gradient along a path of small steps, Lan et al.,
    "LCA: Loss Change Allocation for Neural Network Training", 2019.
    """
    named = named_arrays(weights)
    value = jax.jit(number)(weights)
    if not hasattr(value, "dtype") or value.shape or not jnp.issubdtype(value.dtype, jnp.floating):
        raise DuatError("the number isn't one real scalar: return one, and keep a ledger for each of several")
    value = np.asarray(value)
    require_finite(value, "at the beginning")
    nothing = {name: np.zeros_like(array) for name, array in named.items()}
    return WeightLedger(named, value[None], nothing, {name: np.zeros(0) for name in named}, np.zeros(0), first=named)


def follow(number: "Number", ledger: WeightLedger, weights: Weights) -> WeightLedger:
    """Add a segment to a ledger: any number of steps, split by one secant.

    Args:
        number: the number, the same function as at the beginning; it is traced once, so nothing that it closes over
            may change.
        ledger: what was found so far, such as one that `save` wrote and `duat.open` reads.
        weights: the weights now, arrays of the same names in whatever containers.

    Returns:
        The ledger with one segment more.

    Raises:
        DuatError: if arrays of the weights have other names, shapes or dtypes, or the number is another one.
        NotFinite: if the number isn't finite.
    """
    named = named_arrays(weights)
    require_alike(ledger.weights, named)
    before = jax.tree.unflatten(jax.tree.structure(weights), [jnp.asarray(ledger.weights[name]) for name in named])
    following, _ = segment(number, before, weights, f"after segment {len(ledger.values) - 1}")
    return ledger.then(following)


def require_finite(value: Any, when: str) -> None:
    """Raise unless a number can be split."""
    if not np.isfinite(value):
        raise NotFinite(
            f"the number is {value} {when}: it can't be split, so give one that is finite there, or train at a lower"
            " rate"
        )
