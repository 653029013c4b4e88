"""Rotary positions: queries and keys are turned by an angle that grows with their place in the text."""

from dataclasses import dataclass
from typing import final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def rotary_frequencies(features: int, base: float = 10_000.0) -> tuple[float, ...]:
    """Return the angles per token `θ_k = base^(−2k / features)`, one for each pair of features.

    Args:
        features: number of features that are turned, even.
        base: how slowly the slowest pair turns.

    Example:
        >>> rotary_frequencies(4)
        (1.0, 0.01)

    Source: Su et al., "RoFormer", 2021, Eq. 15.
    """
    return tuple(float(base ** (-k / features)) for k in range(0, features, 2))


@final
@dataclass(frozen=True)
class Rotary:
    """Turn each pair of features of token `t` by `t θ_k`: `(a + i b) ↦ (a + i b) e^{i t θ_k}`.

    A kind of scaling (linear, by parts, …) is a change of the frequencies. Features beyond the turned ones stay.

    Args:
        frequencies: `θ_k` of every pair, usually from `rotary_frequencies`.
        interleaved: whether pair `k` is features `2k` and `2k + 1` (GPT-J) instead of `k` and `k + pairs` (Llama).

    Example:
        >>> import jax.numpy as jnp
        >>> Rotary((1.0,))(jnp.ones((2, 1, 2)))[1, 0].tolist()  # cos 1 − sin 1, sin 1 + cos 1
        [-0.30116..., 1.38177...]

    Source: Su et al., "RoFormer", 2021, Eq. 13.
    """

    frequencies: tuple[float, ...]
    interleaved: bool = False

    def __call__(
        self, x: Float[Array, "... tokens heads head_features"]
    ) -> Float[Array, "... tokens heads head_features"]:
        """Turn the queries or keys.

        Args:
            x: `[..., tokens, heads, head_features]`.
        """
        # Angles of thousands of radians need at least single precision.
        precise = x.dtype if jnp.finfo(x.dtype).bits >= 32 else jnp.float32
        places = jnp.arange(x.shape[-3], dtype=precise)
        angles = places[:, None, None] * jnp.asarray(np.array(self.frequencies), precise)
        cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
        pairs = len(self.frequencies)
        turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        axis = -1 if self.interleaved else -2
        shape = (*x.shape[:-1], pairs, 2) if self.interleaved else (*x.shape[:-1], 2, pairs)
        a, b = jnp.moveaxis(turned.reshape(shape), axis, 0)
        turned = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis).reshape(turned.shape)
        return jnp.concatenate([turned, rest], -1)
