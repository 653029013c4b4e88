"""How tokens, places and predictions are called."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.explanation.inputs import readable, readable_text
from duat_jax.explanation.result import Prediction

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PREDICTIONS = 5


@dataclass(frozen=True)
class Words:
    """What the tokens of one text are called.

    Args:
        tokenizer: the model's tokenizer; without it tokens are called by their numbers.
        names: the text's tokens, readable.
    """

    tokenizer: "Tokenizer | None"
    names: tuple[str, ...]

    def token(self, token: int) -> str:
        """Return what a token says.

        Args:
            token: its id.
        """
        return readable(self.tokenizer, [token])[0]

    def place(self, position: int) -> str:
        """Return where a token stands in the text, and what it says.

        Args:
            position: its index.
        """
        return f"token {position}, {self.names[position]!r}"

    def text(self, ids: Any) -> str:
        """Return what a row of tokens says.

        Args:
            ids: their ids, `[tokens]`.
        """
        return readable_text(self.tokenizer, np.asarray(ids))

    def predictions(self, tokens: Any, probabilities: Any) -> tuple[Prediction, ...]:
        """Return what a model says next.

        Args:
            tokens: ids of the most probable tokens, `[predictions]`.
            probabilities: their probabilities, `[predictions]`.
        """
        names = readable(self.tokenizer, tokens.tolist())
        return tuple(Prediction(name, float(p)) for name, p in zip(names, probabilities, strict=True))


def most_probable(logits: Float[Array, "vocab"]) -> tuple[Array, Array]:
    """Return the ids of the most probable tokens, and their probabilities.

    Args:
        logits: the logits at one position, `[vocab]`.
    """
    probabilities, tokens = jax.lax.top_k(jax.nn.softmax(logits), min(PREDICTIONS, len(logits)))
    return tokens.astype(jnp.int32), probabilities
