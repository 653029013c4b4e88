"""What may be asked of a model: whole numbers, token ids and positions within its range."""

import operator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from duat_jax.models.checkpoint.problems import shown
from duat_jax.models.config import Config


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


def checked_position(position: Any, tokens: int, problems: list[str]) -> int:
    """Return the index of a token from the beginning of a text.

    Args:
        position: anything; negative counts from the end.
        tokens: length of the text; nothing is said of an empty one.
        problems: where a problem is added.
    """
    place = whole(position)
    if tokens and (place is None or not -tokens <= place < tokens):
        problems.append(
            f"position {shown(position)} is outside the text's {tokens} tokens: give {-tokens} to {tokens - 1}"
        )
    return place % tokens if tokens and place is not None else 0


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
