"""Saving of a model with merged adapters as a checkpoint."""

from pathlib import Path

import numpy as np

from duat_jax.files import check_new_directory, new_directory
from duat_jax.lora.adaptable_layers import EMBEDDING, READ_OUT, adaptable_layers, entries_of
from duat_jax.lora.adapter import Adapters, changes_table
from duat_jax.lora.replacement import Replacement, stored_tensors
from duat_jax.models.checkpoint.derived import write_derived
from duat_jax.models.checkpoint.place import open_checkpoint, or_embedded
from duat_jax.models.checkpoint.tensors import Tensors
from duat_jax.models.registry import family_of
from duat_jax.models.transformer import Transformer


def save_merged(directory: Path | str, adapters: Adapters, model: Transformer, base: Path | str | None = None) -> None:
    """Write a copy of the base checkpoint with the adapters added to its tensors; what holds no weights is copied.

    Where an adapter changes one side of a tied read-out, the copy has a read-out of its own.

    Args:
        directory: a new directory, or an empty one.
        adapters: the adapters.
        model: their base model.
        base: the checkpoint that it was loaded from, as `load` takes it; the embedded model if absent.

    Raises:
        BadCheckpoint: if the directory exists and isn't empty.

    Source: Wang & Li, Eq. 17.
    """
    check_new_directory(directory)
    checkpoint = open_checkpoint(or_embedded(base))
    known, family = adaptable_layers(model), family_of(model.config)
    stored, single = checkpoint.tensors(), np.dtype(np.float32)
    full = Tensors(stored, single, prefix=family.prefix, ignored="(?!)", heads=family.heads, older=family.older).names
    tensors = {name: np.ascontiguousarray(stored.read(name, single)) for name in full.values()}
    settings = checkpoint.settings()
    if model.config.head.tied and changes_table(model, adapters):
        by_path = {entry.parameters[0]: entry.names[0] for entry in entries_of(model.config)}
        full[by_path[READ_OUT]] = by_path[READ_OUT]
        tensors[by_path[READ_OUT]] = tensors[full[by_path[EMBEDDING]]].copy()
        settings = {**settings, "tie_word_embeddings": False}
    for module, adapter in adapters.items():
        if isinstance(adapter, Replacement):
            for name, new in stored_tensors(model, adapter).items():
                mixed = (1 - np.float32(adapter.scale)) * tensors[full[name]] + np.float32(adapter.scale) * new
                tensors[full[name]] = mixed.astype(np.float32)
        else:
            update = np.asarray(adapter.update, np.float32)
            tensors[full[f"{module}.weight"]] += update.T if known[module].transposed else update
    with new_directory(directory) as folder:
        write_derived(folder, checkpoint, tensors, settings)
