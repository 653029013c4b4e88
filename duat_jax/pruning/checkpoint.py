"""Saving of a pruned model as an ordinary checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from duat_jax.errors import BadCheckpoint
from duat_jax.files import check_new_directory, new_directory
from duat_jax.models.checkpoint.place import open_checkpoint, or_embedded
from duat_jax.models.loader import load, load_config
from duat_jax.models.saver import write_model
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
"""The configuration fields with the numbers of neurons and of layers, by family."""

STATES_BIAS = ("llama", "granite", "smollm3")
"""Families whose configuration states whether MLPs have biases; in other families it is fixed."""


def require_writable(model: Transformer, compensation: str = "none") -> None:
    """Raise an error unless a pruned model of this family can be saved, with its compensation."""
    family = model.config.family
    if family not in FIELDS:
        raise BadCheckpoint(f"a pruned model of the family {family} can't be saved: only {', '.join(FIELDS)} can")
    if (
        compensation != "none"
        and family not in STATES_BIAS
        and not all(block.mlp_bias for block in model.config.blocks)
    ):
        raise BadCheckpoint(
            f"a model of the family {family} pruned with compensation {compensation!r} can't be saved: its MLPs"
            " get biases, which that family's config.json has no field for; choose compensation 'none'"
        )


def saved_again(
    model: Transformer, source: Path | str | None, directory: Path, *, dtype: DTypeLike = np.float16
) -> Transformer:
    """Write a pruned model, and return what the directory holds."""
    save_pruned(model, source, directory, dtype=dtype)
    return load(directory)


def save_pruned(
    model: Transformer, source: Path | str | None, directory: Path, *, dtype: DTypeLike = np.float16
) -> None:
    """Write a pruned model as a checkpoint directory; if that fails, nothing is left behind.

    `config.json` is that of the source model with the new numbers of layers and neurons: one number where all
    layers have as many, and otherwise a list with one for each layer.

    Args:
        model: the pruned model.
        source: the checkpoint that it was made from, whose configuration, tokenizer and other files it gets; the
            embedded model if absent.
        directory: the directory to create.
        dtype: the stored data type; half precision if absent.

    Raises:
        BadCheckpoint: if the family can't be written, or its configuration can't describe the layers; if the
            directory exists already or can't be created; if a number is too large for the precision.
    """
    check_new_directory(directory)
    checkpoint = open_checkpoint(or_embedded(source))
    require_writable(model)
    config = model.config
    settings: dict[str, Any] = dict(checkpoint.settings())
    neurons, layers = FIELDS[config.family]
    sizes = [block.neurons for block in config.blocks]
    settings |= {neurons: sizes[0] if len(set(sizes)) == 1 else sizes, layers: config.layers}
    if config.family in STATES_BIAS:
        settings["mlp_bias"] = config.blocks[0].mlp_bias
    with new_directory(directory) as folder:
        write_model(folder, model, checkpoint, dtype, settings)
        stored = load_config(folder)
        if [block.mlp_bias for block in stored.blocks] != [block.mlp_bias for block in config.blocks]:
            raise BadCheckpoint(
                f"{checkpoint.settings_path} can't say that the MLPs have biases, which compensate for removed neurons:"
                " save a model that was pruned with compensation 'none'"
            )
        if stored != config:
            raise BadCheckpoint(
                f"{checkpoint.settings_path} can't describe these layers: its other settings"
                " depend on the layer's number, so whole layers can't be removed"
            )
