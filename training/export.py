"""Write a model as a GPT-2 checkpoint directory, in half precision."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from duat_jax.models.transformer import Transformer


def write_gpt2(model: Transformer, tokenizer: Tokenizer, directory: Path) -> None:
    """Write `config.json`, `model.safetensors` and `tokenizer.json` as Hugging Face's GPT-2 reads them.

    Args:
        model: a tied pre-norm language model with `gelu_tanh`.
        tokenizer: its tokenizer.
        directory: where to write; made if it is missing.
    """
    config, final_norm = model.config, model.final_norm
    if final_norm is None:
        raise ValueError("only a language model is written as GPT-2")
    tensors = {
        "wte.weight": model.token_embedding[...],
        "wpe.weight": model.position_embedding[...],
        "ln_f.weight": final_norm.scale[...],
        "ln_f.bias": final_norm.bias[...],
    }
    block: Any
    for i, block in enumerate(model.stack.blocks):
        attention = block.attention
        value_path = (attention.query, attention.key, attention.value)
        tensors |= {
            f"h.{i}.ln_1.weight": block.norm_1.scale[...],
            f"h.{i}.ln_1.bias": block.norm_1.bias[...],
            f"h.{i}.attn.c_attn.weight": jnp.concatenate([part.kernel[...] for part in value_path], axis=1),
            f"h.{i}.attn.c_attn.bias": jnp.concatenate([part.bias[...] for part in value_path]),
            f"h.{i}.attn.c_proj.weight": attention.output.kernel[...],
            f"h.{i}.attn.c_proj.bias": attention.output.bias[...],
            f"h.{i}.ln_2.weight": block.norm_2.scale[...],
            f"h.{i}.ln_2.bias": block.norm_2.bias[...],
            f"h.{i}.mlp.c_fc.weight": block.mlp.input.kernel[...],
            f"h.{i}.mlp.c_fc.bias": block.mlp.input.bias[...],
            f"h.{i}.mlp.c_proj.weight": block.mlp.output.kernel[...],
            f"h.{i}.mlp.c_proj.bias": block.mlp.output.bias[...],
        }
    settings = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab,
        "n_positions": config.positions,
        "n_embd": config.features,
        "n_head": config.heads,
        "n_layer": config.layers,
        "n_inner": config.neurons,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.epsilon,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float16",
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
    half = {name: np.asarray(tensor, np.float16) for name, tensor in tensors.items()}
    save_file(half, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(directory / "tokenizer.json"))
