"""The change of a number along a training run, as a sum over weights and segments."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import NotFinite
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import secant
from duat_jax.training.update import Weights, names_of

Number = Callable[[Weights], Float[Array, ""]]
"""From weights to one number, such as a loss on held-out text."""


@dataclass(frozen=True, eq=False)
class WeightLedger:
    """The change of a number from the first weights to the last, as a sum over weights and segments.

        f(θ_T) − f(θ_0) = Σ_segments Σ_w D_w (θ_end,w − θ_start,w)

    Args:
        weights: the last weights.
        values: the number before each segment, and after all.
        parts: the part of every weight, summed over segments, in the structure of the weights.
        segments: of each segment, the part of every array of weights, by its name.
        completeness: of each segment, the difference and the sum of its parts.
    """

    weights: Weights
    values: tuple[float, ...]
    parts: Weights
    segments: tuple[dict[str, float], ...] = ()
    completeness: tuple[Completeness, ...] = ()

    @property
    def difference(self) -> float:
        """The number of the last weights minus that of the first ones."""
        return self.values[-1] - self.values[0]

    def by_array(self) -> dict[str, Float[np.ndarray, "segments"]]:
        """Return the parts of every array of weights, segment by segment, by its name."""
        return {name: np.array([of[name] for of in self.segments]) for name in names_of(self.weights)}


def begin(number: "Number", weights: Weights) -> WeightLedger:
    """Begin a ledger: three lines in any training loop.

    Args:
        number: the number, a pure function of the weights.
        weights: the first weights, a pytree of floats.

    Returns:
        A ledger without segments.

    Raises:
        NotFinite: if the number isn't finite.

    Example:
        >>> import jax.numpy as jnp
        >>> loss = lambda w: (w["a"] * w["b"]) ** 2
        >>> ledger = begin(loss, {"a": jnp.array(1.0), "b": jnp.array(1.0)})
        >>> ledger = follow(loss, ledger, {"a": jnp.array(0.5), "b": jnp.array(1.0)})  # after some steps
        >>> ledger = follow(loss, ledger, {"a": jnp.array(0.5), "b": jnp.array(2.0)})  # and some more
        >>> ledger.difference, {name: float(part) for name, part in ledger.parts.items()}
        (0.0, {'a': -0.75, 'b': 0.75})

    Source: the secant of `duat.secant`, between weights; with the gradient along a path of small steps, Lan et al.,
    "LCA: Loss Change Allocation for Neural Network Training", 2019.
    """
    weights = jax.tree.map(jnp.asarray, weights)
    value = float(jax.jit(number)(weights))
    _require_finite(value, 0)
    return WeightLedger(weights, (value,), jax.tree.map(jnp.zeros_like, weights))


def follow(number: "Number", ledger: WeightLedger, weights: Weights) -> WeightLedger:
    """Add a segment to a ledger: any number of steps, split by one secant.

    Args:
        number: the number, as at the beginning.
        ledger: what was found so far; an interrupted training goes on with the one that it kept.
        weights: the weights now.

    Returns:
        The ledger with one segment more.

    Raises:
        DuatError: if the weights have another structure, shape or dtype.
        NotFinite: if the number isn't finite.
    """
    weights = jax.tree.map(jnp.asarray, weights)
    split = secant(number)(weights, ledger.weights)
    value = float(split.values[0])
    _require_finite(value, len(ledger.segments) + 1)
    sums = [float(part.sum()) for part in jax.tree.leaves(split.parts)]
    return WeightLedger(
        weights,
        (*ledger.values, value),
        jax.tree.map(jnp.add, ledger.parts, split.parts),
        (*ledger.segments, dict(zip(names_of(weights), sums, strict=True))),
        (*ledger.completeness, split.completeness.on_host()),
    )


def _require_finite(value: float, segments: int) -> None:
    if not np.isfinite(value):
        after = "at the beginning" if segments == 0 else f"after segment {segments}"
        raise NotFinite(f"the number is {value} {after}: it can't be split")
