"""The BERT family: configuration and weight names of Hugging Face's `bert` checkpoints, sentence encoders too."""

from typing import Any

from duat_jax.models.reading import Settings, Tensors, set_linear, set_norm, set_parameter
from duat_jax.models.transformer import Config, Transformer

PREFIX = "bert."
IGNORED = r"embeddings\.position_ids|pooler\..*|cls\..*|classifier\..*"


def read_config(settings: Settings) -> Config:
    """Return the shape of a BERT checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("position_embedding_type", "absolute")
    settings.expect("is_decoder", False)
    settings.expect("add_cross_attention", False)
    return Config(
        family="bert",
        block="post-norm",
        causal=False,
        vocab=settings.integer("vocab_size"),
        positions=settings.integer("max_position_embeddings"),
        features=settings.integer("hidden_size"),
        heads=settings.divisor("num_attention_heads", "hidden_size"),
        layers=settings.integer("num_hidden_layers"),
        neurons=settings.integer("intermediate_size"),
        activation=settings.activation("hidden_act", "gelu"),
        epsilon=settings.number("layer_norm_eps", 1e-12),
    )


def fill(model: Transformer, tensors: Tensors) -> None:
    """Put a checkpoint's tensors into a model.

    Args:
        model: the model, of the checkpoint's shape.
        tensors: the checkpoint's tensors.
    """
    config = model.config
    m, k = config.features, config.neurons
    set_parameter(model, "token_embedding", tensors.read("embeddings.word_embeddings.weight", config.vocab, m))
    position = tensors.read("embeddings.position_embeddings.weight", config.positions, m)
    set_parameter(model, "position_embedding", position)
    # A single text is all of segment 0.
    segments = tensors.read("embeddings.token_type_embeddings.weight", None, m)
    set_parameter(model, "segment_embedding", segments[0])
    set_norm(model.embedding_norm, tensors, "embeddings.LayerNorm", m)
    block: Any
    for i, block in enumerate(model.stack.blocks):
        layer = f"encoder.layer.{i}"
        set_linear(block.attention.query, tensors, f"{layer}.attention.self.query", m, m, transposed=True)
        set_linear(block.attention.key, tensors, f"{layer}.attention.self.key", m, m, transposed=True)
        set_linear(block.attention.value, tensors, f"{layer}.attention.self.value", m, m, transposed=True)
        set_linear(block.attention.output, tensors, f"{layer}.attention.output.dense", m, m, transposed=True)
        set_norm(block.norm_1, tensors, f"{layer}.attention.output.LayerNorm", m)
        set_linear(block.mlp.input, tensors, f"{layer}.intermediate.dense", m, k, transposed=True)
        set_linear(block.mlp.output, tensors, f"{layer}.output.dense", k, m, transposed=True)
        set_norm(block.norm_2, tensors, f"{layer}.output.LayerNorm", m)
