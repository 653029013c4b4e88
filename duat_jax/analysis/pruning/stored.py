"""A pruned model as a checkpoint that loads like any other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike
from safetensors.numpy import save_file

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.new_directory import check_new_directory, new_directory
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.loader import EMBEDDED, load_config
from duat_jax.models.registry import FAMILIES
from duat_jax.models.transformer import Transformer

FIELDS = {"gpt2": ("n_inner", "n_layer"), "llama": ("intermediate_size", "num_hidden_layers")}
"""Of each family that is written, what its numbers of neurons and of layers are called."""


def require_writable(model: Transformer) -> None:
    """Raise unless a model's family can be written.

    Args:
        model: the model.

    Raises:
        BadCheckpoint: naming those that can.
    """
    if model.config.family not in FIELDS:
        raise BadCheckpoint(
            f"a pruned model of the family {model.config.family} can't be saved: only {', '.join(FIELDS)} can"
        )


def save_pruned(
    model: Transformer, source: Path | str | None, directory: Path, *, dtype: DTypeLike = np.float16
) -> None:
    """Write a pruned model as a checkpoint directory, whole or not at all.

    `config.json` is that of the model it was made from with its new numbers of layers and neurons: one number where all
    layers have as many, and otherwise a list with one for each layer.

    Args:
        model: the pruned model.
        source: the checkpoint that it was made from, for its configuration and tokenizer; the embedded model if absent.
        directory: where to write; it is made.
        dtype: what the tensors' entries are stored as; half precision if absent.

    Raises:
        BadCheckpoint: if the family can't be written, or its configuration can't say what the layers are; if the
            directory is there already or can't be made; if a number is too large for the precision.
    """
    require_writable(model)
    check_new_directory(directory)
    checkpoint, config = open_checkpoint(EMBEDDED if source is None else source), model.config
    settings: dict[str, Any] = dict(checkpoint.settings())
    neurons, layers = FIELDS[config.family]
    sizes = [block.neurons for block in config.blocks]
    settings |= {neurons: sizes[0] if len(set(sizes)) == 1 else sizes, layers: config.layers}
    settings |= {"torch_dtype": np.dtype(dtype).name}
    if config.family == "llama":
        settings["mlp_bias"] = config.blocks[0].mlp_bias
    tensors: dict[str, np.ndarray] = {}
    for entry in FAMILIES[config.family].tensor_map(config):
        values = [np.asarray(parameter_at(model, path)[...]) for path in entry.parameters]
        with np.errstate(over="ignore"):
            packed = [np.ascontiguousarray(value.astype(dtype)) for value in entry.transform.pack(values)]
        prefix = "" if entry.names[0].startswith("lm_head.") else FAMILIES[config.family].prefix
        tensors |= {prefix + name: value for name, value in zip(entry.names, packed, strict=True)}
    if large := [name for name, value in tensors.items() if not np.isfinite(value).all()]:
        raise BadCheckpoint(f"{', '.join(large)} has numbers too large for {np.dtype(dtype).name}: choose float32")
    with new_directory(directory) as made:
        (made / "config.json").write_text(json.dumps(settings, indent=2, allow_nan=False) + "\n")
        if load_config(made) != config:
            raise BadCheckpoint(
                f"{checkpoint.settings_path} with other sizes doesn't say what these layers are: what else a layer is"
                " there depends on its number, so whole layers can't go"
            )
        save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
        checkpoint.tokenizer().save(str(made / "tokenizer.json"))
