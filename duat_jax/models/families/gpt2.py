"""The GPT-2 family: configuration and tensor map of Hugging Face's `gpt2` checkpoints."""

import dataclasses

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.family import Family
from duat_jax.models.families.heads import of_decoder, unembedding
from duat_jax.models.families.tensor_map import AS_IT_IS, SIDE_BY_SIDE, Entry, in_every_layer, linear, norm
from duat_jax.nn.config import BlockConfig

BLOCK = [
    *norm("h.{i}.ln_1", "block.norm_1"),
    *linear(
        "h.{i}.attn.c_attn",
        *(f"block.attention.{part}" for part in ("query", "key", "value")),
        transform=SIDE_BY_SIDE,
    ),
    *linear("h.{i}.attn.c_proj", "block.attention.output", transform=AS_IT_IS),
    *norm("h.{i}.ln_2", "block.norm_2"),
    *linear("h.{i}.mlp.c_fc", "block.mlp.input", transform=AS_IT_IS),
    *linear("h.{i}.mlp.c_proj", "block.mlp.output", transform=AS_IT_IS),
]


def read_config(settings: Settings) -> Config:
    """Read the configuration of a GPT-2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("add_cross_attention", False)
    settings.expect("is_encoder_decoder", False)
    settings.expect("pruned_heads", {})
    for name, to in (
        ("hidden_size", "n_embd"),
        ("max_position_embeddings", "n_positions"),
        ("num_attention_heads", "n_head"),
        ("num_hidden_layers", "n_layer"),
    ):
        settings.rename(name, to)
    features, heads = settings.integer("n_embd"), settings.divisor("n_head", "n_embd")
    layers, size = settings.count("n_layer"), max(features // heads, 1)
    neurons = settings.per_layer("n_inner", layers, 4 * features)
    block = BlockConfig(
        arrangement="pre-norm",
        features=features,
        heads=heads,
        neurons=neurons[0],
        activation=settings.activation("activation_function", "gelu_new"),
        epsilon=settings.number("layer_norm_epsilon", 1e-5),
    )
    scale = size**-0.5 if settings.boolean("scale_attn_weights", True) else 1.0
    by_layer = settings.boolean("scale_attn_by_inverse_layer_idx", False)
    scales = [scale / (i + 1 if by_layer else 1) for i in range(layers)]
    vocab = settings.integer("vocab_size")
    return Config(
        family="gpt2",
        blocks=tuple(
            dataclasses.replace(block, neurons=count, scale=None if scale == size**-0.5 else scale)
            for count, scale in zip(neurons, scales, strict=True)
        ),
        vocab=vocab,
        positions=settings.integer("n_positions"),
        head=of_decoder(settings, vocab, tied=True),
    )


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return [
        Entry("wte.weight", ("embedding.token",)),
        Entry("wpe.weight", ("embedding.position",)),
        *in_every_layer(config.layers, BLOCK),
        *norm("ln_f", "final_norm"),
        *unembedding(config),
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="transformer.",
    heads=r"lm_head\.weight|score\.weight",
    layer=r"h\.(\d{1,9})\.",
    ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
    copies={"lm_head.weight": "wte.weight"},
)
