"""Inputs of a model: token ids with their segments, or an image's pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from jaxtyping import Array, Float, Int, Shaped
from tokenizers import Encoding

from duat_jax.errors import InvalidInput
from duat_jax.models.chat import Message, is_chat
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.config import STREAMS, Config, ImageBesideText
from duat_jax.models.encoding import encode
from duat_jax.models.image_beside_text import numbered
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
TEXTS = STREAMS[:2]
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
            the number of the two, 1 or 2, and 0 for padding; where an image stands before a text, 1 for the image's
            tokens, and for the text's 2 more than their ids.
        segments: of each token the segment, `[..., tokens]`; absent if the model has none.
        pixels: of the image that stands before a text, `[..., channels, height, width]`; absent if there is none.
    """

    given: Any
    real: Shaped[np.ndarray, "... tokens"]
    segments: Int[np.ndarray, "... tokens"] | None
    pixels: Any = None

    def embedded(self, model: Any) -> Float[Array, "... tokens features"]:
        """Return a model's embeddings of it."""
        return model.embed(self.given, self.segments, pixels=self.pixels)


def kind_of_input(config: Config) -> str:
    """Return what a model reads, in a word."""
    if config.beside is not None:
        return "input"
    return "text" if config.image is None else "image"


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
    if config.beside is not None:
        return _beside_image(config, config.beside, given, name, problems, tokenizer)
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


def _beside_image(
    config: Config,
    beside: ImageBesideText,
    given: Any,
    name: str,
    problems: list[str],
    tokenizer: "Tokenizer | None",
) -> Inputs:
    """Validate an image or a sound and its text: its tokens stand before those of the text."""
    seen = "sound" if beside.sound else "image"
    nothing = np.zeros((beside.image.channels, beside.image.height, beside.image.width), np.float32)
    if not isinstance(given, Mapping) or {*given} != {seen, "text"}:
        streams = ", ".join(map(str, given)) if isinstance(given, Mapping) else quoted(given)
        problems.append(f'{name} is {streams}: give {{"{seen}": …, "text": …}}, since the model reads both')
        return Inputs(np.zeros(beside.tokens, np.int64), np.ones(beside.tokens, np.int64), None, nothing)
    pixels = checked_pixels(beside.image, given[seen], f"{name}'s {seen}", problems)
    text = checked_ids(config, given["text"], f"{name}'s text", problems, tokenizer)
    if config.decoder_start is not None:
        text = _begun(config.decoder_start, text, given["text"], tokenizer)
    text = _text_of_image(config, beside, text, name, problems)
    ids = np.append(np.zeros(beside.tokens, np.int64), text)
    return Inputs(ids, numbered(beside, ids), None, pixels)


def _text_of_image(
    config: Config, beside: ImageBesideText, ids: Int[np.ndarray, "tokens"], name: str, problems: list[str]
) -> Int[np.ndarray, "_"]:
    """Return a text with as many tokens as an image takes in it, and filled up where the model reads it so."""
    longest = config.positions - beside.tokens
    if beside.placeholder is not None:
        places = np.flatnonzero(ids == beside.placeholder)
        if len(places) not in (0, 1, beside.placeholders):
            problems.append(
                f"{name} has {len(places)} tokens of images, and the image takes {beside.placeholders}: write one where"
                " it stands, or none, and it stands before the text"
            )
        elif len(places) < beside.placeholders:
            place = places[0] if len(places) else 0
            image = np.full(beside.placeholders, beside.placeholder)
            ids = np.concatenate([ids[:place], image, ids[place + len(places) :]])
    if beside.filler is not None:
        ids = np.append(ids, np.full(max(0, longest - len(ids)), beside.filler))
    if len(ids) > longest:
        problems.append(
            f"{name} has {len(ids)} tokens with the image's, but the model's context is {longest}: shorten it"
        )
    return ids


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
    decoder = _begun(start, decoder, said, tokenizer)
    return TokenizedText(np.append(encoder, decoder), np.repeat((0, 1), (len(encoder), len(decoder))))


def _begun(
    start: int, ids: Int[np.ndarray, "tokens"], text: Any, tokenizer: "Tokenizer | None"
) -> Int[np.ndarray, "_"]:
    """Return what a decoder has said: a string begins with the token that it reads first, and none ends it."""
    if not isinstance(text, str) or tokenizer is None:
        return ids
    ids = ids[: len(ids) - tokenizer.encode(text).special_tokens_mask[-1]]
    return ids if len(ids) and ids[0] == start else np.append(start, ids)


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
