"""Inputs of a model: token ids with their segments, or an image's pixels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from jaxtyping import Array, Bool, Int
from tokenizers import Encoding

from duat_jax.errors import InvalidInput
from duat_jax.models.chat import Message
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.config import Config
from duat_jax.models.encoding import encode
from duat_jax.models.validation import checked_ids, checked_pixels, checked_segments

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@final
@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text of several segments, such as a pair of sentences.

    Args:
        ids: token ids, `[tokens]`.
        segments: of each token the segment, `[tokens]`; all of segment 0 if absent.

    Example:
        >>> import duat_jax as duat
        >>> pair = duat.load_tokenizer().encode("import os", "import sys")
        >>> TokenizedText(pair.ids, pair.type_ids).segments
        [0, 0, 1, 1]
    """

    ids: Any
    segments: Any = None


OneInput = (
    str | Encoding | Sequence[int] | Sequence[np.integer] | np.ndarray | Array | TokenizedText | Sequence[Message]
)
"""A text, a chat's messages, token ids, or an image's pixels; an array with one axis more holds many, which its type
doesn't say."""
ManyInputs = Sequence[OneInput]
"""Several texts or images."""


def is_sequence(argument: Any) -> bool:
    """Return whether an argument is a sequence of several; a string or an array isn't."""
    return isinstance(argument, Sequence) and not isinstance(argument, str)


class Inputs(NamedTuple):
    """An input of a model, or a batch of padded ones: a pytree.

    Args:
        given: token ids, `[..., tokens]`; or pixels, `[..., channels, height, width]`.
        real: true for real tokens, `[..., tokens]`.
        segments: of each token the segment, `[..., tokens]`; absent if the model has none.
    """

    given: Any
    real: Bool[np.ndarray, "... tokens"]
    segments: Int[np.ndarray, "... tokens"] | None


def is_many(config: Config, given: Any) -> bool:
    """Return whether an argument holds many texts or images: a list of them, or an array with one more axis."""
    if is_sequence(given):
        first = given[0] if len(given) else None
        if config.image is None:
            text = is_sequence(first) or isinstance(first, str | Encoding | TokenizedText)
            return text or getattr(first, "ndim", 0) > 0
        return getattr(first, "ndim", 0) == 3
    return getattr(given, "ndim", 0) == (2 if config.image is None else 4)


def checked_input(
    config: Config, given: Any, name: str, problems: list[str], tokenizer: "Tokenizer | None" = None
) -> Inputs:
    """Validate one text or image."""
    if config.image is not None:
        pixels = checked_pixels(config.image, given, name, problems)
        return Inputs(pixels, np.ones(config.positions, bool), None)
    if isinstance(given, Encoding):
        given = TokenizedText(given.ids, given.type_ids if config.segments > 1 else None)
    text = given if isinstance(given, TokenizedText) else TokenizedText(given)
    ids = checked_ids(config, text.ids, name, problems, tokenizer)
    if len(ids) and ids[-1] == config.head.filler:
        problems.append(f"{name} ends with token {ids[-1]}, which fills texts up and says nothing here: leave it out")
    return Inputs(ids, np.ones(len(ids), bool), checked_segments(config, text.segments, len(ids), name, problems))


def encode_pair(tokenizer: "Tokenizer", text: str, pair: str, config: Config) -> TokenizedText:
    """Return a pair of texts as one, with a model's special tokens around them and of each token the segment."""
    for part, what in ((text, "the text"), (pair, "the pair's second text")):
        encode(tokenizer, part, what)
    with one_error("the tokenizer can't split the pair", InvalidInput):
        encoding = tokenizer.encode(text, pair)
        return TokenizedText(encoding.ids, encoding.type_ids if config.segments > 1 else None)
