"""Write a model as a GPT-2 checkpoint directory, in half precision."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.registry import FAMILIES
from duat_jax.models.transformer import Transformer


def write_gpt2(model: Transformer, tokenizer: Tokenizer, directory: Path) -> None:
    """Write `config.json`, `model.safetensors` and `tokenizer.json` as Hugging Face's GPT-2 reads them.

    Args:
        model: a tied pre-norm language model with `gelu_tanh`.
        tokenizer: its tokenizer.
        directory: where to write; made if it is missing.
    """
    config, block = model.config, model.config.blocks[0]
    if config.family != "gpt2":
        raise ValueError(f"only a model of the GPT-2 family is written as GPT-2, not {config.family!r}")
    tensors = {
        name: value
        for entry in FAMILIES["gpt2"].tensor_map(config)
        for name, value in zip(
            entry.names,
            entry.transform.pack([parameter_at(model, path)[...] for path in entry.parameters]),
            strict=True,
        )
    }
    settings = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab,
        "n_positions": config.positions,
        "n_embd": block.features,
        "n_head": block.heads,
        "n_layer": config.layers,
        "n_inner": block.neurons,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": block.epsilon,
        "tie_word_embeddings": config.head.tied,
        "torch_dtype": "float16",
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(settings, indent=2, allow_nan=False) + "\n")
    half = {name: np.asarray(tensor, np.float16) for name, tensor in tensors.items()}
    save_file(half, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(directory / "tokenizer.json"))
