"""Inputs of a model: token ids with their segments, or an image's pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from jaxtyping import Array, Int, Shaped
from tokenizers import Encoding

from duat_jax.errors import InvalidInput
from duat_jax.models.chat import Message, is_chat
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
    str
    | Encoding
    | Sequence[int]
    | Sequence[np.integer]
    | np.ndarray
    | Array
    | TokenizedText
    | Sequence[Message]
    | Mapping[str, Any]
)
"""A text, a chat's messages, token ids, or an image's pixels; an array with one axis more holds many, which its type
doesn't say. For an encoder with a decoder both their texts, by name."""
TEXTS = "encoder", "decoder"
"""The names of the two texts of an encoder with a decoder."""
ManyInputs = Sequence[OneInput]
"""Several texts or images."""


def is_sequence(argument: Any) -> bool:
    """Return whether an argument is a sequence of several; a string or an array isn't."""
    return isinstance(argument, Sequence) and not isinstance(argument, str)


class Inputs(NamedTuple):
    """An input of a model, or a batch of padded ones: a pytree.

    Args:
        given: token ids, `[..., tokens]`; or pixels, `[..., channels, height, width]`.
        real: true for real tokens, `[..., tokens]`. Where an encoder's text stands before its decoder's, of each token
            the number of the two, 1 or 2, and 0 for padding.
        segments: of each token the segment, `[..., tokens]`; absent if the model has none.
    """

    given: Any
    real: Shaped[np.ndarray, "... tokens"]
    segments: Int[np.ndarray, "... tokens"] | None


def is_many(config: Config, given: Any) -> bool:
    """Return whether an argument holds many texts or images: a list of them, or an array with one more axis."""
    if is_sequence(given):
        first = given[0] if len(given) else None
        if config.image is None:
            text = is_sequence(first) or isinstance(first, str | Encoding | TokenizedText)
            return text or getattr(first, "ndim", 0) > 0 or (isinstance(first, Mapping) and not is_chat(given))
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
        alone = config.decoder_start is not None
        given = given.ids if alone else TokenizedText(given.ids, given.type_ids if config.segments > 1 else None)
    if config.decoder_start is not None and not isinstance(given, TokenizedText):
        given = _of_two(config, config.decoder_start, given, name, problems, tokenizer)
    text = given if isinstance(given, TokenizedText) else TokenizedText(given)
    ids = checked_ids(config, text.ids, name, problems, tokenizer)
    if config.decoder_start is not None:
        segments = checked_segments(config, text.segments, len(ids), name, problems)
        return Inputs(ids, np.ones(len(ids), np.int64) if segments is None else segments + 1, None)
    if len(ids) and ids[-1] == config.head.filler:
        problems.append(f"{name} ends with token {ids[-1]}, which fills texts up and says nothing here: leave it out")
    return Inputs(ids, np.ones(len(ids), bool), checked_segments(config, text.segments, len(ids), name, problems))


def _of_two(
    config: Config, start: int, given: Any, name: str, problems: list[str], tokenizer: "Tokenizer | None"
) -> TokenizedText:
    """Return an encoder's text and its decoder's as one; the decoder's is begun where nothing of it is given."""
    texts, before = given if isinstance(given, Mapping) else {"encoder": given}, len(problems)
    if not {"encoder"} <= {*texts} <= {*TEXTS}:
        problems.append(
            f"{name} has streams called {', '.join(map(str, texts))}: give the encoder's text, or both,"
            ' {"encoder": …, "decoder": …}'
        )
        return TokenizedText([start, start], [0, 1])
    encoder = checked_ids(config, texts["encoder"], f"{name} of the encoder", problems, tokenizer)
    decoder, said = np.array([start]), texts.get("decoder")
    if said is not None:
        decoder = checked_ids(config, said, f"{name} of the decoder", problems, tokenizer)
    if len(problems) > before:
        return TokenizedText([start, start], [0, 1])
    if isinstance(said, str) and tokenizer is not None:
        # It reads the token that it begins with, and none that ends what it said.
        decoder = np.append(start, decoder[: len(decoder) - tokenizer.encode(said).special_tokens_mask[-1]])
    return TokenizedText(np.append(encoder, decoder), np.repeat((0, 1), (len(encoder), len(decoder))))


def encode_pair(tokenizer: "Tokenizer", text: str, pair: str, config: Config) -> TokenizedText:
    """Return a pair of texts as one, with a model's special tokens around them and of each token the segment."""
    if config.decoder_start is not None:
        problems: list[str] = []
        texts = {"encoder": text, "decoder": pair}
        both = _of_two(config, config.decoder_start, texts, "the text", problems, tokenizer)
        if problems:
            raise InvalidInput("; ".join(problems))
        return both
    for part, what in ((text, "the text"), (pair, "the pair's second text")):
        encode(tokenizer, part, what)
    with one_error("the tokenizer can't split the pair", InvalidInput):
        encoding = tokenizer.encode(text, pair)
        return TokenizedText(encoding.ids, encoding.type_ids if config.segments > 1 else None)
