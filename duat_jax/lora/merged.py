"""Saving of a model with merged adapters as a checkpoint."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from duat_jax.files import new_directory
from duat_jax.lora.adapter import Adapters
from duat_jax.lora.places import places
from duat_jax.models.checkpoint.derived import write_derived
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.loader import EMBEDDED
from duat_jax.models.registry import FAMILIES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION


def save_merged(directory: Path | str, adapters: Adapters, model: Transformer, base: Path | str | None = None) -> None:
    """Write a copy of the base checkpoint with the adapters added to its tensors; what holds no weights is copied.

    Args:
        directory: a new directory, or an empty one.
        adapters: the adapters.
        model: their base model.
        base: the checkpoint that it was loaded from, as `load` takes it; the embedded model if absent.

    Raises:
        BadCheckpoint: if the directory exists and isn't empty.

    Source: Wang & Li, Eq. 17.
    """
    checkpoint = open_checkpoint(EMBEDDED if base is None else base)
    stored, known, family = checkpoint.tensors(), places(model), FAMILIES[model.config.family]
    updates = {}
    for module, adapter in adapters.items():
        update = np.asarray(adapter.scale * jnp.matmul(adapter.down, adapter.up, precision=PRECISION), np.float32)
        updates[f"{module}.weight"] = update.T if known[module].transposed else update
    tensors = {}
    for name in stored.names():
        plain = name if re.fullmatch(family.heads, name) else name.removeprefix(family.prefix)
        tensor = stored.read(name, np.dtype(np.float32))
        tensors[name] = np.ascontiguousarray(tensor + updates[plain] if plain in updates else tensor)
    with new_directory(directory) as folder:
        write_derived(folder, checkpoint, tensors)
