"""A pruned model as a checkpoint that loads like any other."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike
from safetensors.numpy import save_file

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.new_directory import check_new_directory, new_directory
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.families.family import Family
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.loader import EMBEDDED, load_config
from duat_jax.models.registry import FAMILIES
from duat_jax.models.transformer import Transformer

_AS_LLAMA = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo2", "olmo3"),
    *("smollm3", "stablelm", "starcoder2", "granite", "cohere", "gpt_neox"),
)
FIELDS = {
    "gpt2": ("n_inner", "n_layer"),
    "gptj": ("n_inner", "n_layer"),
    "opt": ("ffn_dim", "num_hidden_layers"),
    **dict.fromkeys(_AS_LLAMA, ("intermediate_size", "num_hidden_layers")),
}
"""Of each family that is written, what its numbers of neurons and of layers are called."""

SAID_BIAS = ("llama", "granite", "smollm3")
"""Families whose configuration says whether MLPs have biases; those of the others have what their family has."""


def require_writable(model: Transformer, compensation: str = "none") -> None:
    """Raise unless a model's family can be written, with what takes the place of what goes.

    Args:
        model: the model, before it is pruned.
        compensation: what takes the place: all but `"none"` give MLPs biases.

    Raises:
        BadCheckpoint: naming the families that can, or the compensation.
    """
    family = model.config.family
    if family not in FIELDS:
        raise BadCheckpoint(f"a pruned model of the family {family} can't be saved: only {', '.join(FIELDS)} can")
    if compensation != "none" and family not in SAID_BIAS and not all(block.mlp_bias for block in model.config.blocks):
        raise BadCheckpoint(
            f"a model of the family {family} that is pruned with compensation {compensation!r} can't be saved: its MLPs"
            " get biases, which that family's config.json can't say; choose compensation 'none'"
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
    if config.family in SAID_BIAS:
        settings["mlp_bias"] = config.blocks[0].mlp_bias
    tensors: dict[str, np.ndarray] = {}
    family = FAMILIES[config.family]
    for entry in family.tensor_map(config):
        values = [np.asarray(parameter_at(model, path)[...]) for path in entry.parameters]
        with np.errstate(over="ignore"):
            packed = [np.ascontiguousarray(value.astype(dtype)) for value in entry.transform.pack(values)]
        tensors |= {_full_name(family, name): value for name, value in zip(entry.names, packed, strict=True)}
    if large := [name for name, value in tensors.items() if not np.isfinite(value).all()]:
        raise BadCheckpoint(f"{', '.join(large)} has numbers too large for {np.dtype(dtype).name}: store float32")
    with new_directory(directory) as made:
        (made / "config.json").write_text(json.dumps(settings, indent=2, allow_nan=False) + "\n")
        told = load_config(made)
        if [block.mlp_bias for block in told.blocks] != [block.mlp_bias for block in config.blocks]:
            raise BadCheckpoint(
                f"{checkpoint.settings_path} can't say that the MLPs have biases, which stand for what was removed:"
                " save a model that was pruned with compensation 'none'"
            )
        if told != config:
            raise BadCheckpoint(
                f"{checkpoint.settings_path} with other sizes doesn't say what these layers are: what else a layer is"
                " there depends on its number, so whole layers can't go"
            )
        save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
        checkpoint.tokenizer().save(str(made / "tokenizer.json"))


def _full_name(family: Family, name: str) -> str:
    return name if re.fullmatch(family.heads, name) else family.prefix + name
