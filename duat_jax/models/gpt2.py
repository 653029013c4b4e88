"""The GPT-2 family: configuration and weight names of Hugging Face's `gpt2` checkpoints."""

from typing import Any

import jax.numpy as jnp

from duat_jax.models.reading import Settings, Tensors, set_linear, set_norm, set_parameter
from duat_jax.models.transformer import Config, Transformer

PREFIX = "transformer."
IGNORED = r"h\.\d+\.attn\.(bias|masked_bias)"


def read_config(settings: Settings) -> Config:
    """Return the shape of a GPT-2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("scale_attn_weights", True)
    settings.expect("scale_attn_by_inverse_layer_idx", False)
    settings.expect("add_cross_attention", False)
    features = settings.integer("n_embd")
    return Config(
        family="gpt2",
        block="pre-norm",
        causal=True,
        vocab=settings.integer("vocab_size"),
        positions=settings.integer("n_positions"),
        features=features,
        heads=settings.divisor("n_head", "n_embd"),
        layers=settings.integer("n_layer"),
        neurons=settings.integer("n_inner", 4 * features),
        activation=settings.activation("activation_function", "gelu_new"),
        epsilon=settings.number("layer_norm_epsilon", 1e-5),
        tied=settings.boolean("tie_word_embeddings", True),
    )


def fill(model: Transformer, tensors: Tensors) -> None:
    """Put a checkpoint's tensors into a model.

    Args:
        model: the model, of the checkpoint's shape.
        tensors: the checkpoint's tensors.
    """
    config = model.config
    m, k = config.features, config.neurons
    set_parameter(model, "token_embedding", tensors.read("wte.weight", config.vocab, m))
    set_parameter(model, "position_embedding", tensors.read("wpe.weight", config.positions, m))
    set_norm(model.final_norm, tensors, "ln_f", m)
    if config.tied:
        tensors.ignore("lm_head.weight")
    else:
        set_parameter(model, "separate_unembedding", tensors.read("lm_head.weight", config.vocab, m))
    block: Any
    for i, block in enumerate(model.stack.blocks):
        set_norm(block.norm_1, tensors, f"h.{i}.ln_1", m)
        set_norm(block.norm_2, tensors, f"h.{i}.ln_2", m)
        kernels = jnp.split(tensors.read(f"h.{i}.attn.c_attn.weight", m, 3 * m), 3, axis=1)
        biases = jnp.split(tensors.read(f"h.{i}.attn.c_attn.bias", 3 * m), 3)
        attention = block.attention
        for layer, kernel, bias in zip((attention.query, attention.key, attention.value), kernels, biases, strict=True):
            set_parameter(layer, "kernel", kernel)
            set_parameter(layer, "bias", bias)
        set_linear(attention.output, tensors, f"h.{i}.attn.c_proj", m, m)
        set_linear(block.mlp.input, tensors, f"h.{i}.mlp.c_fc", m, k)
        set_linear(block.mlp.output, tensors, f"h.{i}.mlp.c_proj", k, m)
