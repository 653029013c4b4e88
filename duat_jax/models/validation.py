"""What may be asked of a model: whole numbers, token ids, classes and positions within its range."""

import operator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from duat_jax.errors import DuatError
from duat_jax.forms.affine_form import CARRIERS
from duat_jax.models.checkpoint.problems import shown
from duat_jax.models.config import Config, Image

SHOWN_CLASSES = 8


class Places(NamedTuple):
    """Where a text can be read.

    Args:
        tokens: its length; 0 if it isn't known.
        default: the place that is read where none is named; or in words, why there is none.
    """

    tokens: int
    default: int | str


def whole(value: Any) -> int | None:
    """Return a whole number, or `None` for what isn't one; a truth value isn't.

    Args:
        value: anything.
    """
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def checked_ids(config: Config, ids: Any, what: str, problems: list[str]) -> Int[np.ndarray, "tokens"]:
    """Return a text's token ids, or none where there is a problem with them.

    Args:
        config: the model's parts.
        ids: anything.
        what: what they are, for the message.
        problems: where a problem is added.
    """
    try:
        found = np.asarray(ids)
    except (ValueError, TypeError, OverflowError):
        found = np.asarray(None)
    if found.ndim == 1 and len(found) == 0:
        problems.append(f"{what} is empty: give at least one token")
    elif found.ndim != 1 or found.dtype.kind not in "iu":
        problems.append(f"{what}: token ids must be whole numbers in one row, not {found.dtype} {list(found.shape)}")
    elif len(found) > config.positions:
        problems.append(f"{what} has {len(found)} tokens, but the model's context is {config.positions}: shorten it")
    elif found.min() < 0 or found.max() >= config.vocab:
        problems.append(
            f"{what} has token id {found.max() if found.min() >= 0 else found.min()}, but the model knows"
            f" 0 to {config.vocab - 1}: use its own tokenizer"
        )
    else:
        return found.astype(np.int64)
    return np.zeros(0, np.int64)


def checked_token(config: Config, token: Any, what: str, problems: list[str]) -> int | None:
    """Return a token id, or `None` where there is none or a problem with it.

    Args:
        config: the model's parts.
        token: anything.
        what: what it is, for the message.
        problems: where a problem is added.
    """
    if token is None:
        return None
    found = whole(token)
    if found is None or not 0 <= found < config.vocab:
        problems.append(f"the {what} {shown(token)} is no token id: the model knows 0 to {config.vocab - 1}")
        return None
    return found


def checked_segments(config: Config, segments: Any, tokens: int, what: str, problems: list[str]) -> Any:
    """Return of each token the segment, or `None` if the model has none.

    Args:
        config: the model's parts.
        segments: anything; all of segment 0 if absent.
        tokens: length of the text; nothing is said of an empty one.
        what: which text it is, for the message.
        problems: where a problem is added.
    """
    if segments is None:
        return np.zeros(tokens, np.int64) if config.segments else None
    try:
        found = np.asarray(segments)
    except (ValueError, TypeError, OverflowError):
        found = np.asarray(None)
    if not config.segments:
        problems.append(f"a {config.family} model has no segments: leave them out of {what}")
    elif tokens and (found.shape != (tokens,) or found.dtype.kind not in "iu"):
        problems.append(f"{what}: segments must be {tokens} whole numbers, one for each token, not {shown(segments)}")
    elif tokens and (found.min() < 0 or found.max() >= config.segments):
        problems.append(f"{what}: segments must lie between 0 and {config.segments - 1}, not {shown(segments)}")
    else:
        return found.astype(np.int64)
    return None


def checked_pixels(image: Image, pixels: Any, what: str, problems: list[str]) -> Float[np.ndarray, "_ _ _"]:
    """Return an image's pixels, or zeros where there is a problem with them.

    Args:
        image: what a model reads.
        pixels: anything.
        what: which image it is, for the message.
        problems: where a problem is added.
    """
    shape = (image.channels, image.height, image.width)
    try:
        found = np.asarray(pixels)
    except (ValueError, TypeError, OverflowError):
        found = np.asarray(None)
    if found.shape != shape or not np.issubdtype(found.dtype, np.floating) or not np.all(np.isfinite(found)):
        problems.append(
            f"{what}: pixels must be finite floating-point numbers {list(shape)} (channels, height, width), not"
            f" {found.dtype} {list(found.shape)}: duat.load_image makes them of a file"
        )
        return np.zeros(shape, np.float32)
    return found


def checked_class(config: Config, name: Any, what: str, problems: list[str]) -> int | None:
    """Return the number of a class, or `None` where there is none or a problem with it.

    Args:
        config: the model's parts.
        name: what it is called, or its number.
        what: what it is, for the message.
        problems: where a problem is added.
    """
    if name is None:
        return None
    head = config.head
    found = head.labels.index(name) if isinstance(name, str) and head.labels.count(name) == 1 else whole(name)
    if found is None or not 0 <= found < head.outputs:
        named = ", ".join(map(shown, head.labels[:SHOWN_CLASSES]))
        more = ", …" if len(head.labels) > SHOWN_CLASSES else ""
        problems.append(
            f"the {what} {shown(name)} is no class of the model: give {f'{named}{more} or ' if named else ''}a number"
            f" from 0 to {head.outputs - 1}"
        )
        return None
    return found


def checked_position(position: Any, places: Places, problems: list[str]) -> int:
    """Return the index of a token from the beginning of a text.

    Args:
        position: anything; negative counts from the end, and none is the default place.
        places: where the text can be read; nothing is said of an empty one.
        problems: where a problem is added.
    """
    tokens, default = places
    if not tokens:
        return 0
    if position is None and isinstance(default, str):
        problems.append(default)
        return 0
    place = whole(default if position is None else position)
    if place is None or not -tokens <= place < tokens:
        problems.append(
            f"position {shown(position)} is outside the text's {tokens} tokens: give {-tokens} to {tokens - 1}"
        )
        return 0
    return place % tokens


def checked_vector(features: int, vector: Any, problems: list[str]) -> np.ndarray | jax.Array:
    """Return a direction in the residual stream, or zeros where there is a problem with it.

    Args:
        features: width of the stream.
        vector: anything.
        problems: where a problem is added.
    """
    try:
        found = vector if isinstance(vector, jax.Array) else np.asarray(vector)
    except (ValueError, TypeError, OverflowError):
        found = np.asarray(None)
    shape = (features,)
    if found.shape != shape or not np.issubdtype(found.dtype, np.floating) or not np.all(np.isfinite(found)):
        problems.append(
            f"the direction must be {shape[0]} finite floating-point numbers, not {found.dtype} {list(found.shape)}"
        )
        return np.zeros(shape, np.float32)
    return found


def require_gated(config: Config, carries: str | None) -> None:
    """Raise if a model is told what carries its gated terms and has none, or is told what can't.

    Args:
        config: the model's parts.
        carries: what is to carry them, a name in `affine_form.CARRIERS`; nothing is told if absent.

    Raises:
        DuatError: if no block is gated, or there is no such name.
    """
    if carries not in (None, *CARRIERS):
        raise DuatError(f"carries = {shown(carries)} isn't one of {', '.join(CARRIERS)}")
    if carries is not None and all(block.mlp == "plain" for block in config.blocks):
        raise DuatError(
            f"carries = {shown(carries)} is for gated models, and a {config.family} has no gate: leave it out"
        )
