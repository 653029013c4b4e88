"""The GPT-J family: configuration and tensor map of Hugging Face's `gptj` checkpoints."""

import dataclasses

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.family import Family, blocks_of
from duat_jax.models.families.heads import of_decoder, unembedding
from duat_jax.models.families.tensor_map import Entry, in_every_layer, linear, norm
from duat_jax.nn.config import BlockConfig
from duat_jax.nn.position import Rotary, rotary_frequencies


def read_config(settings: Settings) -> Config:
    """Read the configuration of a GPT-J checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("scale_attn_weights", True)
    settings.expect("rotary", True)
    for name, to in (
        ("hidden_size", "n_embd"),
        ("max_position_embeddings", "n_positions"),
        ("num_attention_heads", "n_head"),
        ("num_hidden_layers", "n_layer"),
    ):
        settings.rename(name, to)
    features, turned = settings.integer("n_embd"), settings.count("rotary_dim")
    if turned % 2:
        settings.problems.append(f"rotary_dim = {turned} isn't a number of pairs")
    neurons = settings.per_layer("n_inner", settings.count("n_layer"), 4 * features)
    block = BlockConfig(
        arrangement="parallel",
        features=features,
        heads=settings.divisor("n_head", "n_embd"),
        neurons=neurons[0],
        rotary=Rotary(rotary_frequencies(turned), interleaved=True),
        attention_bias=False,
        output_bias=False,
        activation=settings.activation("activation_function", "gelu_new"),
        epsilon=settings.number("layer_norm_epsilon", 1e-5),
    )
    vocab = settings.integer("vocab_size")
    head = of_decoder(settings, vocab, tied=False)
    return Config(
        family="gptj",
        blocks=blocks_of(block, neurons),
        vocab=vocab,
        positions=settings.integer("n_positions"),
        position_embedding=False,
        head=dataclasses.replace(head, bias=head.kind == "next token"),
    )


BLOCK = [
    *norm("h.{i}.ln_1", "block.norm_1", "block.norm_2"),  # one stands before both
    *linear("h.{i}.attn.q_proj", "block.attention.query", bias=False),
    *linear("h.{i}.attn.k_proj", "block.attention.key", bias=False),
    *linear("h.{i}.attn.v_proj", "block.attention.value", bias=False),
    *linear("h.{i}.attn.out_proj", "block.attention.output", bias=False),
    *linear("h.{i}.mlp.fc_in", "block.mlp.input"),
    *linear("h.{i}.mlp.fc_out", "block.mlp.output"),
]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return [
        Entry("wte.weight", ("embedding.token",)),
        *in_every_layer(config.layers, BLOCK),
        *norm("ln_f", "final_norm"),
        *unembedding(config),
        *([Entry("lm_head.bias", ("head.bias",))] if config.head.bias else []),
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="transformer.",
    heads=r"lm_head\.(weight|bias)|score\.weight",
    layer=r"h\.(\d{1,9})\.",
    ignored=r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)",
    copies={"lm_head.weight": "wte.weight"},
)
