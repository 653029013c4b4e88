"""Target: the cosine similarity of two texts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.models.config import Config
from duat_jax.models.pooling import MEAN, Pooling
from duat_jax.models.targets.base import ForwardPass, Reader, Reading, Target, Words, reading
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places, checked_ids, checked_pixels
from duat_jax.nn.linear import PRECISION
from duat_jax.transform.stored_program import stored_program


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class _PooledDirection(Reader):
    """The cosine of a text's pooled hidden states and a unit vector, the norm of the pooled states held."""

    unit: Any
    pooling: Pooling = field(metadata={"static": True})

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        pooled = self.pooling(passed.states, passed.real)
        scale = 1 / jnp.linalg.norm(pooled)
        value = jnp.dot(pooled, self.unit, precision=PRECISION) * scale
        return reading(value, *self.pooling.transposed(self.unit * scale, passed.states, passed.real))


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Similarity(Target):
    """The cosine similarity of two texts' pooled last hidden states, with the explained text's norm held.

    Args:
        against: the other text, or its token ids, `[other_tokens]`; of a vision model, the other image's pixels.
        pooling: how hidden states are pooled; as the checkpoint states if absent, and the mean where it states nothing.
    """

    against: Any
    pooling: Pooling | None = field(default=None, metadata={"static": True})
    needs = ("hidden",)

    @property
    def constant(self) -> str | None:
        """The name of the biases of the pooling's layers, if there are some."""
        return "pooling.bias" if self.pooling is not None and self.pooling.has_bias else None

    def checked(self, config: Config, places: Places, problems: list[str]) -> "Similarity":
        """Return the target with its arguments validated for a model.

        Args:
            config: the model's parts.
            places: the positions of the text.
            problems: the list to which every problem is added.
        """
        pooling = config.pooling if self.pooling is None else self.pooling
        if (problem := pooling.problem_of(config.features)) is not None:
            problems.append(problem)
        if config.image is not None:
            return Similarity(checked_pixels(config.image, self.against, "the other image", problems), pooling)
        against = checked_ids(config, self.against, "the other text", problems, places.tokenizer)
        for label, tokens in (("the text", places.tokens), ("the other text", len(against))):
            if tokens > (pooling.longest or tokens):
                problems.append(
                    f"{label} has {tokens} tokens, and sentence-transformers reads {pooling.longest} of them"
                    " (max_seq_length): shorten it"
                )
        return Similarity(against, pooling)

    def reader(self, run: Callable[[Any], tuple[Array, int]]) -> _PooledDirection:
        """Return what reads the target from forward passes.

        Args:
            run: returns the last hidden states of another text, `[padded_tokens, features]`, and its length.
        """
        hidden, tokens = run(self.against)
        pooling = self.pooling or MEAN
        return _PooledDirection(_unit(pooling, hidden, tokens), pooling)

    def label(self, reading: Reading, words: Words) -> str:
        """Describe the target.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """
        return f"cosine similarity to {words.text(self.against)!r} ({(self.pooling or MEAN).label()})"


@partial(stored_program, static_argnames=("pooling",))
def _unit(
    pooling: Pooling, hidden: Float[Array, "tokens features"], tokens: Int[Array, ""] | int
) -> Float[Array, "pooled"]:
    pooled = pooling(hidden, jnp.arange(len(hidden)) < tokens)
    return pooled / jnp.linalg.norm(pooled)
