"""Pooling of hidden states into one vector of a text, as sentence encoders do."""

from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from duat_jax.models.dense import Dense
from duat_jax.nn.linear import PRECISION

MODES = {
    "cls": "first token",
    "max": "maximum over tokens",
    "mean": "mean over tokens",
    "mean_sqrt_len_tokens": "sum over tokens by the root of their number",
    "weightedmean": "mean over tokens weighted by position",
    "lasttoken": "last token",
}
"""Modes of sentence-transformers, in the order in which several of them are concatenated, and their labels."""


@final
@dataclass(frozen=True)
class Pooling:
    """Configuration of the pooling of hidden states.

    Args:
        modes: names in `MODES`, whose vectors are concatenated.
        problem: the reason why the checkpoint's own vectors can't be computed, if they can't.
        dense: layers through which the vector goes, the first one first.
        longest: the number of tokens at which sentence-transformers cuts a text; none if absent.
    """

    modes: tuple[str, ...] = ("mean",)
    problem: str | None = None
    dense: tuple[Dense, ...] = ()
    longest: int | None = field(default=None, compare=False)  # the vector of a shorter text doesn't depend on it

    def label(self) -> str:
        """Return the modes and the layers in words."""
        return ", ".join([" and ".join(MODES[mode] for mode in self.modes), *(layer.label() for layer in self.dense)])

    def problem_of(self, features: int) -> str | None:
        """Return the reason why the vectors of a model can't be computed, or `None`.

        Args:
            features: the width of its hidden states.
        """
        width = features * len(self.modes)
        for layer in self.dense:
            outputs, inputs = layer.weight.shape
            if inputs != width:
                return self.problem or f"the {layer.label()} after the pooling is given {width} features"
            width = outputs
        return self.problem

    @property
    def has_bias(self) -> bool:
        """Whether a layer has a bias."""
        return any(layer.bias is not None for layer in self.dense)

    def __call__(self, x: Float[Array, "tokens features"], real: Bool[Array, "tokens"]) -> Float[Array, "vector"]:
        """Return the vector of a text: those of all modes, one after another, through the layers.

        Args:
            x: the hidden states, `[tokens, features]`.
            real: true for real tokens, `[tokens]`.
        """
        return reduce(lambda vector, layer: layer(vector), self.dense, self._pooled(x, real))

    def _pooled(self, x: Float[Array, "tokens features"], real: Bool[Array, "tokens"]) -> Float[Array, "pooled"]:
        """Return the vectors of all modes, one after another."""

        def pooled(mode: str) -> Array:
            if mode == "max":
                return jnp.where(real[:, None], x, jnp.finfo(x.dtype).min).max(0)
            return jnp.dot(_weights(mode, real, x.dtype), x, precision=PRECISION)

        return jnp.concatenate([pooled(mode) for mode in self.modes])

    def transposed(
        self, u: Float[Array, "vector"], x: Float[Array, "tokens features"], real: Bool[Array, "tokens"]
    ) -> tuple[Float[Array, "tokens features"], Float[Array, ""]]:
        """Return the covector on hidden states that reads a covector on the vector of their text, and the biases' part.

        Of a maximum the tokens that have it are held; several that have it count in equal parts. Of a layer's
        activation the ratio to what it takes is held.

        Args:
            u: the covector on the vector, `[vector]`.
            x: the hidden states, `[tokens, features]`.
            real: true for real tokens, `[tokens]`.
        """
        inputs = list(accumulate(self.dense, lambda vector, layer: layer(vector), initial=self._pooled(x, real)))
        constant = jnp.zeros((), u.dtype)
        for layer, given in zip(self.dense[::-1], inputs[-2::-1], strict=True):
            u, of_bias = layer.pull(u, given)
            constant = constant + of_bias

        def spread(mode: str, u: Array) -> Array:
            if mode == "max":
                largest = real[:, None] & (x == jnp.where(real[:, None], x, jnp.finfo(x.dtype).min).max(0))
                return largest.astype(x.dtype) * (u / largest.sum(0).astype(x.dtype))
            return _weights(mode, real, x.dtype)[:, None] * u

        parts = jnp.split(u, len(self.modes))
        return jnp.stack([spread(mode, part) for mode, part in zip(self.modes, parts, strict=True)]).sum(0), constant


MEAN = Pooling()
"""The pooling where a checkpoint states none."""


def _weights(mode: str, real: Bool[Array, "tokens"], dtype: Any) -> Float[Array, "tokens"]:
    """Return the weight of every token in a mode that is linear."""
    count = jnp.cumsum(real)
    if mode in ("cls", "lasttoken"):
        return (real & (count == (1 if mode == "cls" else count[-1]))).astype(dtype)
    weights = jnp.where(real, count if mode == "weightedmean" else 1, 0).astype(dtype)
    return weights / (jnp.sqrt(weights.sum()) if mode == "mean_sqrt_len_tokens" else weights.sum())
