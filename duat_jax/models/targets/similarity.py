"""Target: the cosine similarity of two texts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.models.config import Config
from duat_jax.models.targets.base import ForwardPass, Reader, Reading, Target, Words, reading
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places, checked_ids, checked_pixels
from duat_jax.nn.linear import PRECISION


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _MeanDirection(Reader):
    """The cosine of the mean of the last hidden states and a unit vector, the mean's norm held."""

    unit: Any

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        x = passed.states
        weights = passed.real.astype(x.dtype) / passed.real.sum().astype(x.dtype)
        pooled = jnp.dot(weights, x, precision=PRECISION)
        scale = 1 / jnp.linalg.norm(pooled)
        value = jnp.dot(pooled, self.unit, precision=PRECISION) * scale
        return reading(value, weights[:, None] * (self.unit * scale))


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Similarity(Target):
    """The cosine similarity of two texts' mean-pooled last hidden states, with the explained text's norm held.

    Args:
        against: the other text, or its token ids, `[other_tokens]`; of a vision model, the other image's pixels.
    """

    against: Any
    needs = ("hidden",)

    def checked(self, config: Config, places: Places, problems: list[str]) -> "Similarity":
        """Return the target with its arguments validated for a model.

        Args:
            config: the model's parts.
            places: the positions of the text.
            problems: the list to which every problem is added.
        """
        if config.image is not None:
            return Similarity(checked_pixels(config.image, self.against, "the other image", problems))
        return Similarity(checked_ids(config, self.against, "the other text", problems, places.tokenizer))

    def reader(self, run: Callable[[Any], tuple[Array, int]]) -> _MeanDirection:
        """Return what reads the target from forward passes.

        Args:
            run: returns the last hidden states of another text, `[padded_tokens, features]`, and its length.
        """
        hidden, tokens = run(self.against)
        return _MeanDirection(_unit_mean(hidden, tokens))

    def label(self, reading: Reading, words: Words) -> str:
        """Describe the target.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """
        return f"cosine similarity to {words.text(self.against)!r}"


@jax.jit
def _unit_mean(hidden: Float[Array, "tokens features"], tokens: Int[Array, ""] | int) -> Float[Array, "features"]:
    total = jnp.where((jnp.arange(len(hidden)) < tokens)[:, None], hidden, 0).sum(0)
    return total / jnp.linalg.norm(total)
