"""Validation of arguments: whole numbers, token ids, classes and positions within a model's range."""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.forms.affine_form import GATE_RULES
from duat_jax.models.chat import is_chat
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config, Image
from duat_jax.models.encoding import encode
from duat_jax.models.ids import id_problem
from duat_jax.models.layout import NO_LAYERS
from duat_jax.models.vocabulary.classes import find_class
from duat_jax.models.vocabulary.token import Token
from duat_jax.models.vocabulary.vocabulary import find_token

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN_CLASSES = 8


def require_loaded(model: Any) -> None:
    """Raise unless a model is one of this package's."""
    if not isinstance(getattr(model, "config", None), Config):
        raise DuatError(
            f"the model is a {type(model).__name__}: give one that duat.load returns. A function or a module of your"
            ' own is explained by duat.decompose(fn, x, marks="auto"), contrasted by duat.secant(fn)(x, y) and changed'
            " by duat.edit(duat.auto(fn), edits)"
        )


def require_layers(config: Config) -> None:
    """Raise unless a model is made of layers of this package."""
    if config.marks is not None:
        raise DuatError(NO_LAYERS)


class Places(NamedTuple):
    """The positions of a text, and the default one.

    Args:
        tokens: its length; 0 if unknown.
        default: the default position, or a sentence that says why there is none.
        tokenizer: the model's tokenizer, if it was given: makes token ids of what is named by its text.
        encoder: how many of them are an encoder's, before its decoder's; the last states are the decoder's.
    """

    tokens: int
    default: int | str
    tokenizer: "Tokenizer | None" = None
    encoder: int = 0


def whole_number(value: Any) -> int | None:
    """Convert a value to an integer; `None` if it isn't a whole number, as a truth value isn't."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def checked_ids(
    config: Config, ids: Any, label: str, problems: list[str], tokenizer: "Tokenizer | None" = None
) -> Int[np.ndarray, "tokens"]:
    """Validate a text's token ids; return an empty array if there is a problem."""
    if isinstance(ids, str) or is_chat(ids):
        ids = _encoded(encode, tokenizer, ids, label, problems)
        if ids is None:
            return np.zeros(0, np.int64)
    try:
        array = np.asarray(ids)
    except (ValueError, TypeError, OverflowError):
        array = np.asarray(None)
    if array.ndim == 1 and len(array) == 0:
        remedy = "give at least one token"
        if isinstance(ids, list | tuple):
            remedy = f"{ids} holds nothing; give token ids, or a text"
        problems.append(f"{label} is empty: {remedy}")
    elif array.ndim != 1 or array.dtype.kind not in "iu":
        described = f"{array.dtype} {list(array.shape)}" if array.dtype.kind in "biuf" else quoted(ids)
        problems.append(f"{label}: token ids must be whole numbers in one row, not {described}")
    elif len(array) > config.positions:
        problems.append(f"{label} has {len(array)} tokens, but the model's context is {config.positions}: shorten it")
    elif problem := id_problem(config, array, label):
        problems.append(problem)
    else:
        return array.astype(np.int64)
    return np.zeros(0, np.int64)


def checked_token(
    config: Config, token: Any, label: str, problems: list[str], tokenizer: "Tokenizer | None" = None
) -> int | None:
    """Validate a token id; return `None` if it is absent or there is a problem."""
    if isinstance(token, str):
        token = _of_text(tokenizer, token, label, problems)
    if token is None:
        return None
    number = whole_number(token)
    if number is None or not 0 <= number < config.vocab:
        problems.append(f"the {label} {quoted(token)} is no token id: the model's ids are 0 to {config.vocab - 1}")
        return None
    return number


def _of_text(tokenizer: "Tokenizer | None", text: str, label: str, problems: list[str]) -> int | None:
    """Return the token that a text names, or `None` if there is a problem."""
    if tokenizer is None and isinstance(text, Token):
        return text.id
    if tokenizer is None and text.isdecimal() and len(text) < 10:  # without a tokenizer a token is called so
        return int(text)
    return _encoded(find_token, tokenizer, text, label, problems)


def _encoded(
    call: Callable[["Tokenizer", Any, str], Any],
    tokenizer: "Tokenizer | None",
    text: Any,
    label: str,
    problems: list[str],
) -> Any:
    """Return what a tokenizer makes of a text, or `None` if there is a problem."""
    if tokenizer is None:
        kind = "string" if isinstance(text, str) else "chat"
        problems.append(f"{label} is the {kind} {quoted(text)}: pass the model's tokenizer too, or give token ids")
        return None
    try:
        return call(tokenizer, text, label)
    except InvalidInput as error:
        problems.append(str(error))
        return None


def checked_segments(config: Config, segments: Any, tokens: int, label: str, problems: list[str]) -> Any:
    """Validate the segment of each token; return `None` if the model has none."""
    count = config.segments if config.decoder_start is None else 2
    if segments is None and config.decoder_start is None:
        return np.zeros(tokens, np.int64) if count else None
    try:
        array = np.asarray(segments)
    except (ValueError, TypeError, OverflowError):
        array = np.asarray(None)
    if not count:
        problems.append(f"a {config.family} model has no segments: leave them out of {label}")
    elif tokens and (array.shape != (tokens,) or array.dtype.kind not in "iu"):
        problems.append(f"{label}: segments must be {tokens} whole numbers, one for each token, not {quoted(segments)}")
    elif tokens and (array.min() < 0 or array.max() >= count):
        problems.append(f"{label}: segments must lie between 0 and {count - 1}, not {quoted(segments)}")
    elif tokens and config.decoder_start is not None and not _is_one_after_the_other(array):
        problems.append(
            f"{label}: segments must be 0 for the encoder's tokens and then 1 for the decoder's, at least one of each,"
            f" not {quoted(segments)}"
        )
    else:
        return array.astype(np.int64)
    return None


def _is_one_after_the_other(segments: Int[np.ndarray, "tokens"]) -> bool:
    """Return whether there are tokens of an encoder's text and after them those of its decoder's."""
    return bool(segments[0] == 0 and segments[-1] == 1 and (np.diff(segments) >= 0).all())


def checked_pixels(image: Image, pixels: Any, label: str, problems: list[str]) -> Float[np.ndarray, "_ _ _"]:
    """Validate an image's pixels; return zeros if there is a problem."""
    shape = (image.channels, image.height, image.width)
    try:
        array = np.asarray(pixels)
    except (ValueError, TypeError, OverflowError):
        array = np.asarray(None)
    if array.shape != shape or not np.issubdtype(array.dtype, np.floating) or not np.all(np.isfinite(array)):
        remedy = "duat.load_image reads them from a file"
        if array.shape == (*shape[1:], shape[0]):
            remedy = "put the channels first, np.moveaxis(pixels, -1, 0)"
        problems.append(
            f"{label}: pixels must be finite floating-point numbers {list(shape)} (channels, height, width), not"
            f" {array.dtype} {list(array.shape)}: {remedy}"
        )
        return np.zeros(shape, np.float32)
    return array


def checked_class(config: Config, name: Any, label: str, problems: list[str]) -> int | None:
    """Validate a class and return its number; `None` if it is absent or there is a problem."""
    if name is None:
        return None
    head = config.head
    number = find_class(head.labels, name) if isinstance(name, str) else whole_number(name)
    if number is None or not 0 <= number < head.outputs:
        names = ", ".join(map(quoted, head.labels[:SHOWN_CLASSES]))
        more = ", …" if len(head.labels) > SHOWN_CLASSES else ""
        problems.append(
            f"the {label} {quoted(name)} is no class of the model: give {f'{names}{more} or ' if names else ''}a number"
            f" from 0 to {head.outputs - 1}"
        )
        return None
    return number


def require_two(output: int | None, contrast: int | None, kind: str, problems: list[str]) -> None:
    """Note a problem if an output is contrasted with itself."""
    if output is not None and output == contrast:
        problems.append(f"the target and the contrast are the same {kind}: their difference is zero; give two")


def checked_position(position: Any, places: Places, problems: list[str]) -> int:
    """Validate a position and return the index of its token from the beginning of the text."""
    tokens, default = places.tokens, places.default
    if not tokens:
        return 0
    if position is None and isinstance(default, str):
        problems.append(default)
        return 0
    place = whole_number(default if position is None else position)
    if place is None or not -tokens <= place < tokens:
        problems.append(
            f"position {quoted(position)} is outside the text's {tokens} tokens: give {-tokens} to {tokens - 1}"
        )
        return 0
    if place % tokens < places.encoder < tokens:
        problems.append(
            f"position {quoted(position)} is before the tokens at which something is said, the text's tokens"
            f" {places.encoder} to {tokens - 1}: give one of them"
        )
        return 0
    return place % tokens


def checked_vector(features: int, vector: Any, problems: list[str]) -> np.ndarray | jax.Array:
    """Validate a direction in the residual stream; return zeros if there is a problem."""
    try:
        array = vector if isinstance(vector, jax.Array) else np.asarray(vector)
    except (ValueError, TypeError, OverflowError):
        array = np.asarray(None)
    shape = (features,)
    if array.shape != shape or not np.issubdtype(array.dtype, np.floating) or not np.all(np.isfinite(array)):
        problems.append(
            f"the direction must be {shape[0]} finite floating-point numbers, not {array.dtype} {list(array.shape)}"
        )
        return np.zeros(shape, np.float32)
    return array


def require_gated(config: Config, gate_rule: str | None) -> None:
    """Raise if a rule for gated terms is unknown, or given for a model without gates."""
    if gate_rule not in (None, *GATE_RULES):
        raise DuatError(f"gate_rule = {quoted(gate_rule)} isn't one of {', '.join(GATE_RULES)}")
    if gate_rule is not None and all(block.mlp == "plain" for block in config.blocks):
        raise DuatError(
            f"gate_rule = {quoted(gate_rule)} is for gated models, and a {config.family} has no gate: leave it out"
        )
