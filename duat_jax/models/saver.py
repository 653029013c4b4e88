"""Saving of a model as a checkpoint, tensor by tensor as its family names them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from duat_jax.errors import BadCheckpoint
from duat_jax.files import new_directory
from duat_jax.models.checkpoint.derived import write_derived
from duat_jax.models.checkpoint.place import open_checkpoint, or_embedded
from duat_jax.models.checkpoint.stored import Checkpoint
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.registry import family_of
from duat_jax.models.transformer import Transformer


def save_model(
    model: Transformer, source: Path | str | None, directory: Path | str, dtype: DTypeLike = np.float32
) -> None:
    """Save a model in a new directory, with the files of the checkpoint that it was made from."""
    with new_directory(directory) as folder:
        write_model(folder, model, open_checkpoint(or_embedded(source)), dtype)


def write_model(
    folder: Path,
    model: Transformer,
    source: Checkpoint,
    dtype: DTypeLike,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write a model's weights as a checkpoint with the files of the one that it was made from."""
    tensors: dict[str, np.ndarray] = {}
    family = family_of(model.config)
    for entry in family.tensor_map(model.config):
        values = [np.asarray(parameter_at(model, path)[...]) for path in entry.parameters]
        with np.errstate(over="ignore"):
            packed = [np.ascontiguousarray(value.astype(dtype)) for value in entry.transform.pack(values)]
        full = [name if re.fullmatch(family.heads, name) else family.prefix + name for name in entry.names]
        tensors |= dict(zip(full, packed, strict=True))
    if large := [name for name, value in tensors.items() if not np.isfinite(value).all()]:
        raise BadCheckpoint(f"{', '.join(large)} has numbers too large for {np.dtype(dtype).name}: store float32")
    write_derived(folder, source, tensors, settings)
