"""Validation of token ids, before JAX clamps or wraps those that are outside a table."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Shaped

from duat_jax.errors import InvalidInput
from duat_jax.models.config import Config


def id_problem(config: Config, ids: Shaped[np.ndarray, "..."], label: str) -> str | None:
    """Return an error message if an array's entries aren't token ids of a model."""
    if ids.dtype.kind not in "iu":
        return f"{label}: token ids must be whole numbers, not {ids.dtype}"
    if not ids.size or (ids.min() >= 0 and ids.max() < config.vocab):
        return None
    return (
        f"{label} has token id {ids.max() if ids.min() >= 0 else ids.min()}, but the model's ids are 0 to"
        f" {config.vocab - 1}: use its own tokenizer"
    )


def require_ids(config: Config, arrays: Mapping[str, Any], mask: Any = None) -> None:
    """Raise unless all entries of arrays are token ids of a model; within `jax.jit` they aren't known, nor checked.

    Args:
        config: the model's configuration.
        arrays: token ids, each by its name in a message.
        mask: true where they are real tokens: padding may be any number.

    Example:
        >>> import duat_jax as duat
        >>> require_ids(duat.load_config(), {"the text": [5, 4096]})
        Traceback (most recent call last):
        duat_jax.errors.InvalidInput: the text has token id 4096, but the model's ids are 0 to 4095: use its own ...
    """
    if not _is_known(mask):
        return
    known = {label: np.asarray(ids) for label, ids in arrays.items() if _is_known(ids)}
    if mask is not None:
        known = {label: ids[np.broadcast_to(mask, ids.shape)] for label, ids in known.items()}
    if problems := [problem for label, ids in known.items() if (problem := id_problem(config, ids, label))]:
        raise InvalidInput("; ".join(problems))


def _is_known(array: Any) -> bool:
    """Return whether an array's numbers are here: not in a traced program, nor on another process's devices."""
    return not isinstance(array, jax.core.Tracer) and (not isinstance(array, jax.Array) or array.is_fully_addressable)
