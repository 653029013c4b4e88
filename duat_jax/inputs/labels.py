"""Labels of tokens, classes, places and predictions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.kinds import kept_as
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.config import Config, Image
from duat_jax.models.vocabulary.classes import class_label
from duat_jax.models.vocabulary.token import Token, quoted_label
from duat_jax.models.vocabulary.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PREDICTIONS = 5


@kept_as("prediction")
class Prediction(NamedTuple):
    """A predicted token or class.

    Args:
        token: the token, or the class's name.
        probability: between 0 and 1.
    """

    token: str
    probability: float

    @property
    def id(self) -> int | None:
        """The id of the token, or the index of the class; unknown in a file of an older version."""
        return self.token.id if isinstance(self.token, Token) else None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain data, for JSON."""
        return self._asdict() | {"id": self.id}


@dataclass(frozen=True)
class Labels:
    """Labels of the tokens of one text, or of the patches of one image, and of a model's outputs.

    Args:
        config: the model's parts.
        tokenizer: the model's tokenizer; without it tokens are called by their numbers.
        names: the text's tokens, or the names of an image's patches.
    """

    config: Config
    tokenizer: "Tokenizer | None"
    names: tuple[str, ...]

    def token(self, token: int) -> Token:
        """Return a token."""
        return readable(self.tokenizer, [token])[0]

    def output(self, output: int) -> Token:
        """Return an output: a token, or a class."""
        if self.config.head.kind != "classes":
            return self.token(output)
        return class_label(self.config.head.labels, output)

    def place(self, position: int) -> str:
        """Return the label of a place: the token's index and its text."""
        return f"token {position}, {quoted_label(self.names[position])}"

    def text(self, ids: Any) -> str:
        """Return the text of a sequence of tokens."""
        return "another image" if self.config.image is not None else readable_text(self.tokenizer, np.asarray(ids))

    def predictions(self, outputs: Any, probabilities: Any) -> tuple[Prediction, ...]:
        """Return the most probable outputs with their labels."""
        return tuple(
            Prediction(self.output(output), float(probability))
            for output, probability in zip(outputs.tolist(), probabilities, strict=True)
        )


def labels_of(config: Config, inputs: Inputs, tokenizer: "Tokenizer | None") -> Labels:
    """Return the labels of one text, or of one image: the whole of it, and each patch by row and column."""
    if config.beside is not None:
        text = readable(tokenizer, inputs.given[config.beside.tokens :].tolist())
        return Labels(config, tokenizer, (*_names_of_patches(config.beside.image, sound=config.beside.sound), *text))
    if config.image is None:
        return Labels(config, tokenizer, readable(tokenizer, inputs.given.tolist()))
    return Labels(config, tokenizer, tuple(_names_of_patches(config.image, sound=False)))


def _names_of_patches(image: Image, *, sound: bool) -> Iterator[str]:
    """Yield the names of an image's tokens, the row and the column of each patch, or of a sound its first frame."""
    columns = image.columns
    yield from ("whole" if place == 0 else f"register {place}" for place in range(image.whole))
    for place in range(image.patches):
        yield f"frame {place * image.patch_width}" if sound else f"{place // columns},{place % columns}"


def most_probable(logits: Float[Array, "outputs"]) -> tuple[Array, Array]:
    """Return the most probable tokens or classes, by number, and their probabilities."""
    probabilities, outputs = jax.lax.top_k(jax.nn.softmax(logits), min(PREDICTIONS, len(logits)))
    return outputs.astype(jnp.int32), probabilities


def readable(tokenizer: "Tokenizer | None", tokens: Iterable[int]) -> tuple[Token, ...]:
    """Return each token."""
    if tokenizer is None:
        return tuple(Token(str(token), token) for token in tokens)
    return vocabulary_of(tokenizer).tokens(tokens)


def readable_text(tokenizer: "Tokenizer | None", ids: Int[np.ndarray, "tokens"]) -> str:
    """Return the text of a sequence of tokens."""
    if tokenizer is None:
        return " ".join(map(str, ids))
    with one_error("the tokenizer can't say what its tokens are", InvalidInput):
        return tokenizer.decode([int(i) for i in ids])
