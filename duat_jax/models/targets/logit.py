"""Targets: the logit and the log-probability of a token."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.models.config import Config
from duat_jax.models.head import Logits
from duat_jax.models.targets.base import ForwardPass, ReadByItself, Reading, Words, one_row, reading
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places, checked_position, checked_token, require_two
from duat_jax.models.vocabulary.token import quoted_label
from duat_jax.nn.linear import PRECISION, in_blocks


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Logit(ReadByItself):
    """The logit of a token, or its difference from another: `⟨E_t − E_c, h_p⟩` with the last hidden state `h_p`.

    Args:
        token: the token `t`, by its id, or by its text where the question has a tokenizer; the most probable if absent.
        contrast: the token `c` whose logit is subtracted, likewise.
        position: the token `p` at which it is read; negative counts from the end. If absent the last one, or for a
            masked language model the only mask.

    Example:
        >>> import duat_jax as duat
        >>> print(duat.explain(duat.load(), [5, 6, 7], duat.targets.Logit(8, contrast=9)).target)
        logit of '8' minus that of '9' at token 2, '7'
    """

    token: Any = None
    contrast: Any = None
    position: Any = None
    output = "token"
    needs = ("next token", "masked token")

    def checked(self, config: Config, places: Places, problems: list[str]) -> "Logit":
        """Return the target with its arguments validated for a model.

        Args:
            config: the model's parts.
            places: the positions of the text.
            problems: the list to which every problem is added.
        """
        token = checked_token(config, self.token, "target", problems, places.tokenizer)
        contrast = checked_token(config, self.contrast, "contrast", problems, places.tokenizer)
        require_two(token, contrast, "token", problems)
        return Logit(token, contrast, checked_position(self.position, places, problems))

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        """Return the value and its covector.

        Args:
            model: the model.
            passed: its forward pass.
        """
        logits_at = partial(model.logits_at, passed.states[self.position])
        return read_logit(logits_at, self.token, self.contrast, partial(one_row, passed.states, self.position))

    def label(self, reading: Reading, words: Words) -> str:
        """Describe the target.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """
        minus = "" if self.contrast is None else f" minus that of {quoted_label(words.output(self.contrast))}"
        return f"logit of {quoted_label(words.output(int(reading.output)))}{minus} at {words.place(self.position)}"


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class LogProbability(ReadByItself):
    """The log-probability of a token: its logit minus the mean logit, probabilities held, minus their entropy.

    With the logits `l`, the probabilities `p = softmax(l)` and their entropy `H(p) = −Σ p_v log p_v`, exactly

        log p_t = (l_t − Σ p_v l_v) − H(p).

    The bracket is linear in the stream once `p` is held, and its covector is the gradient of `log p_t`. `−H(p)` is a
    part of its own, `entropy`: it is the same for every token.

    Args:
        token: the token `t`, as in `Logit`; the most probable if absent.
        position: the token at which it is read, as in `Logit`.
    """

    token: Any = None
    position: Any = None
    output = "token"
    needs = ("next token", "masked token")

    def checked(self, config: Config, places: Places, problems: list[str]) -> "LogProbability":
        """Return the target with its arguments validated for a model.

        Args:
            config: the model's parts.
            places: the positions of the text.
            problems: the list to which every problem is added.
        """
        token = checked_token(config, self.token, "target", problems, places.tokenizer)
        return LogProbability(token, checked_position(self.position, places, problems))

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        """Return the value and its covector.

        Args:
            model: the model.
            passed: its forward pass.
        """
        logits = model.logits_at(passed.states[self.position])
        token = jnp.argmax(logits.values) if self.token is None else self.token
        logs = jax.nn.log_softmax(logits.values)
        probabilities = jnp.exp(logs)
        # `l_t − Σ p_v l_v`: where `p_t` is nearly 1, the difference of one and it would be rounding.
        others = probabilities.at[token].set(0)
        weights = (-others).at[token].set(others.sum())
        blocks, rows = in_blocks(weights * logits.ratios), in_blocks(logits.rows)
        direction = jnp.einsum("bv,bvf->bf", blocks, rows, precision=PRECISION).sum(0)
        return reading(
            logs[token],
            one_row(passed.states, self.position, direction),
            jnp.dot(weights, logits.constants, precision=PRECISION),
            token,
            -jnp.dot(probabilities, logs, precision=PRECISION),
        )

    def label(self, reading: Reading, words: Words) -> str:
        """Describe the target.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """
        return f"log-probability of {quoted_label(words.output(int(reading.output)))} at {words.place(self.position)}"


def read_logit(
    logits_at: Callable[..., Logits], output: Any, contrast: Any, covector: Callable[[Float[Array, "features"]], Array]
) -> Reading:
    """Return the reading of a logit, or of the difference of two."""
    if output is None:
        output = jnp.argmax(logits_at().values)
    # Of a large vocabulary the other logits take as long as several layers.
    logits = logits_at(jnp.stack([jnp.asarray(i, jnp.int32) for i in (output, contrast) if i is not None]))
    value, direction, constant = logits.values[0], logits.direction(0), logits.constants[0]
    if contrast is not None:
        value, constant = value - logits.values[1], constant - logits.constants[1]
        direction = direction - logits.direction(1)
    return reading(value, covector(direction), constant, output)
