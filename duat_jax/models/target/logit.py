"""The logit of a token and its log-probability: what a language model is asked."""

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.models.asked import checked_position, checked_token
from duat_jax.models.config import Config
from duat_jax.models.target.base import ForwardPass, Reading, Target, Words, one_row, reading
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Logit(Target):
    """The logit of a token, or its difference to that of another: `⟨E_t − E_c, h_p⟩` with the last hidden state `h_p`.

    Args:
        token: the token id `t`; the most probable one if absent.
        contrast: the token id `c` whose logit is subtracted.
        position: the token `p` at which it is read; negative counts from the end.

    Example:
        >>> import duat_jax as duat
        >>> duat.explain(duat.load(), [5, 6, 7], duat.Logit(8, contrast=9)).target
        "logit of '8' minus that of '9' at token 2, '7'"
    """

    token: Any = None
    contrast: Any = None
    position: Any = -1
    needs_head = "logits"

    def checked(self, config: Config, tokens: int, problems: list[str]) -> "Logit":
        """Return the same with whole numbers in the model's range.

        Args:
            config: the model's parts.
            tokens: length of the text.
            problems: where everything that is wrong is added.
        """
        return Logit(
            checked_token(config, self.token, "target", problems),
            checked_token(config, self.contrast, "contrast", problems),
            checked_position(self.position, tokens, problems),
        )

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        """Return value and covector.

        Args:
            model: the model.
            passed: its forward pass.
        """
        logits = logits_at(model, passed, self.position)
        token = jnp.argmax(logits) if self.token is None else self.token
        value, direction = logits[token], model.unembedding[token]
        if self.contrast is not None:
            value, direction = value - logits[self.contrast], direction - model.unembedding[self.contrast]
        return reading(value, one_row(passed.hidden, self.position, direction), token)

    def label(self, reading: Reading, words: Words) -> str:
        """Return what is explained, in words.

        Args:
            reading: the target on this text.
            words: how its tokens are called.
        """
        minus = "" if self.contrast is None else f" minus that of {words.token(self.contrast)!r}"
        return f"logit of {words.token(int(reading.token))!r}{minus} at {words.place(self.position)}"


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class LogProbability(Target):
    """The log-probability of a token in its first-order held form: its logit minus the mean logit, probabilities held.

    With the logits `l`, the probabilities `p = softmax(l)` and their entropy `H = −Σ p_v log p_v`, exactly

        log p_t = (l_t − Σ p_v l_v) − H(p).

    The parts sum to the bracket, which is linear in the stream once `p` is held, and whose covector is the gradient of
    `log p_t`; the entropy, which is the same for every token, is in no part.

    Args:
        token: the token id `t`; the most probable one if absent.
        position: the token at which it is read; negative counts from the end.
    """

    token: Any = None
    position: Any = -1
    needs_head = "logits"

    def checked(self, config: Config, tokens: int, problems: list[str]) -> "LogProbability":
        """Return the same with whole numbers in the model's range.

        Args:
            config: the model's parts.
            tokens: length of the text.
            problems: where everything that is wrong is added.
        """
        token = checked_token(config, self.token, "target", problems)
        return LogProbability(token, checked_position(self.position, tokens, problems))

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        """Return value and covector.

        Args:
            model: the model.
            passed: its forward pass.
        """
        logits = logits_at(model, passed, self.position)
        token = jnp.argmax(logits) if self.token is None else self.token
        held = jax.nn.softmax(logits)
        value = logits[token] - jnp.dot(held, logits, precision=PRECISION)
        direction = model.unembedding[token] - jnp.dot(held, model.unembedding, precision=PRECISION)
        readout = one_row(passed.hidden, self.position, direction)
        return reading(value, readout, token, jax.nn.log_softmax(logits)[token])

    def label(self, reading: Reading, words: Words) -> str:
        """Return what is explained, in words.

        Args:
            reading: the target on this text.
            words: how its tokens are called.
        """
        entropy = float(reading.value) - float(reading.log_probability)
        return (
            f"logit of {words.token(int(reading.token))!r} minus the mean logit, probabilities held (its"
            f" log-probability {float(reading.log_probability):.6f} plus the entropy {entropy:.6f}),"
            f" at {words.place(self.position)}"
        )


def logits_at(model: Transformer, passed: ForwardPass, position: Any) -> Float[Array, "vocab"]:
    """Return a language model's logits at one position of a forward pass.

    Args:
        model: the model.
        passed: its forward pass.
        position: index of the token.
    """
    return jnp.dot(model.unembedding, passed.hidden[position], precision=PRECISION)
