"""Pooling of hidden states into one vector of a text, as sentence encoders do."""

from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

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
    """

    modes: tuple[str, ...] = ("mean",)
    problem: str | None = None

    def label(self) -> str:
        """Return the modes in words."""
        return " and ".join(MODES[mode] for mode in self.modes)

    def __call__(self, x: Float[Array, "tokens features"], real: Bool[Array, "tokens"]) -> Float[Array, "pooled"]:
        """Return the vectors of all modes, one after another.

        Args:
            x: the hidden states, `[tokens, features]`.
            real: true for real tokens, `[tokens]`.
        """

        def pooled(mode: str) -> Array:
            if mode == "max":
                return jnp.where(real[:, None], x, jnp.finfo(x.dtype).min).max(0)
            return jnp.dot(_weights(mode, real, x.dtype), x, precision=PRECISION)

        return jnp.concatenate([pooled(mode) for mode in self.modes])

    def transposed(
        self, u: Float[Array, "pooled"], x: Float[Array, "tokens features"], real: Bool[Array, "tokens"]
    ) -> Float[Array, "tokens features"]:
        """Return the covector on hidden states that reads a covector on their pooled vectors.

        Of a maximum the tokens that have it are held; several that have it count in equal parts.

        Args:
            u: the covector on the vectors, `[modes · features]`.
            x: the hidden states, `[tokens, features]`.
            real: true for real tokens, `[tokens]`.
        """

        def spread(mode: str, u: Array) -> Array:
            if mode == "max":
                largest = real[:, None] & (x == jnp.where(real[:, None], x, jnp.finfo(x.dtype).min).max(0))
                return largest.astype(x.dtype) * (u / largest.sum(0).astype(x.dtype))
            return _weights(mode, real, x.dtype)[:, None] * u

        parts = jnp.split(u, len(self.modes))
        return jnp.stack([spread(mode, part) for mode, part in zip(self.modes, parts, strict=True)]).sum(0)


MEAN = Pooling()
"""The pooling where a checkpoint states none."""


def _weights(mode: str, real: Bool[Array, "tokens"], dtype: Any) -> Float[Array, "tokens"]:
    """Return the weight of every token in a mode that is linear."""
    count = jnp.cumsum(real)
    if mode in ("cls", "lasttoken"):
        return (real & (count == (1 if mode == "cls" else count[-1]))).astype(dtype)
    weights = jnp.where(real, count if mode == "weightedmean" else 1, 0).astype(dtype)
    return weights / (jnp.sqrt(weights.sum()) if mode == "mean_sqrt_len_tokens" else weights.sum())
