"""Rotary positions: rotation of queries and keys by angles proportional to their position."""

from dataclasses import dataclass
from typing import final

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float


def rotary_frequencies(features: int, base: float = 10_000.0) -> tuple[float, ...]:
    """Return the angles per token `θ_k = base^(−2k / features)`, one for each pair of features.

    Args:
        features: number of rotated features; if it is odd, the last forms a pair with the next feature.
        base: the base of the powers: larger ones slow down the slowest pairs.

    Example:
        >>> rotary_frequencies(4)
        (1.0, 0.01)

    Source: Su et al., "RoFormer", 2021, Eq. 15.
    """
    return tuple(float(base ** (-k / features)) for k in range(0, features, 2))


@final
@dataclass(frozen=True)
class Switched:
    """Rotary frequencies that are replaced by others in long texts.

    Args:
        original: the longest text, in tokens, with the usual frequencies.
        frequencies: the frequencies of longer texts.

    Source: Ding et al., "LongRoPE", 2024.
    """

    original: int
    frequencies: tuple[float, ...]

    def __call__(self, usual: Float[Array, "pairs"], length: Float[Array, "..."]) -> Float[Array, "... pairs"]:
        """Return the frequencies for a length of text.

        Args:
            usual: the frequencies of short texts.
            length: number of tokens, `[...]`.
        """
        return jnp.where(length[..., None] > self.original, jnp.asarray(np.array(self.frequencies), usual.dtype), usual)


@final
@dataclass(frozen=True)
class Stretched:
    """Rotary frequencies whose base grows with the text: `θ_k(n) = θ_k (f n / n₀ − (f − 1))^(−2k / (features − 2))`.

    Args:
        original: `n₀`, the longest text, in tokens, with the usual frequencies.
        factor: `f`.
        features: number of rotated features, as in `rotary_frequencies`.
    """

    original: int
    factor: float
    features: int

    def __call__(self, usual: Float[Array, "pairs"], length: Float[Array, "..."]) -> Float[Array, "... pairs"]:
        """Return the frequencies for a length of text.

        Args:
            usual: the frequencies of short texts.
            length: number of tokens, `[...]`.
        """
        growth = self.factor * jnp.maximum(length / self.original, 1) - (self.factor - 1)
        exponents = 2 * jnp.arange(len(usual), dtype=usual.dtype) / max(self.features - 2, 1)
        return usual * growth[..., None] ** -exponents


@final
@dataclass(frozen=True)
class Rotary:
    """Rotate each pair of features of token `t` by `t θ_k`: `(a + i b) ↦ m (a + i b) e^{i t θ_k}`.

    Further features stay unchanged.

    Args:
        frequencies: `θ_k` of every pair, usually from `rotary_frequencies`.
        interleaved: whether pair `k` is features `2k` and `2k + 1` (GPT-J) instead of `k` and `k + pairs` (Llama).
        magnitude: `m`, the factor of the rotated features.
        longer: the change of the frequencies in long texts; none if absent.

    Example:
        >>> import jax.numpy as jnp
        >>> Rotary((1.0,))(jnp.ones((2, 1, 2)))[1, 0].tolist()  # cos 1 − sin 1, sin 1 + cos 1
        [-0.30116..., 1.38177...]

    Source: Su et al., "RoFormer", 2021, Eq. 13.
    """

    frequencies: tuple[float, ...]
    interleaved: bool = False
    magnitude: float = 1.0
    longer: Switched | Stretched | None = None

    def __call__(
        self, x: Float[Array, "... tokens heads head_features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens heads head_features"]:
        """Rotate the queries or keys.

        Args:
            x: `[..., tokens, heads, head_features]`.
            mask: true for real tokens, `[..., tokens]`; the text begins with the first of them and ends with the last.
        """
        angles = self._angles(x.shape[-3], mask, x.dtype)
        cos, sin = ((self.magnitude * f(angles)).astype(x.dtype)[..., None, :] for f in (jnp.cos, jnp.sin))
        pairs = len(self.frequencies)
        turned, unturned = x[..., : 2 * pairs], x[..., 2 * pairs :]
        axis = -1 if self.interleaved else -2
        shape = (*x.shape[:-1], pairs, 2) if self.interleaved else (*x.shape[:-1], 2, pairs)
        a, b = jnp.moveaxis(turned.reshape(shape), axis, 0)
        turned = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis).reshape(turned.shape)
        return jnp.concatenate([turned, unturned], -1)

    def _angles(
        self, tokens: int, mask: Bool[Array, "... tokens"] | None, dtype: DTypeLike
    ) -> Float[Array, "... tokens pairs"]:
        # Angles of thousands of radians need at least single precision.
        precise = dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32
        places = jnp.arange(tokens, dtype=precise)
        frequencies = jnp.asarray(np.array(self.frequencies), precise)
        if self.longer is not None:
            real = jnp.ones(tokens, bool) if mask is None else mask
            length = tokens - real.argmax(-1) - jnp.flip(real, -1).argmax(-1)
            frequencies = self.longer(frequencies, length.astype(precise))
        return places[:, None] * frequencies[..., None, :]
