"""The OPT family: configuration and tensor map of Hugging Face's `opt` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.family import Family, blocks_of
from duat_jax.models.families.heads import of_decoder, unembedding
from duat_jax.models.families.tensor_map import Entry, in_layer, linear, norm
from duat_jax.nn.config import BlockConfig

FIRST_PLACE = 2
"""The row of the first position in the position embedding."""


def read_config(settings: Settings) -> Config:
    """Read the configuration of an OPT checkpoint.

    Args:
        settings: its `config.json`.
    """
    features = settings.integer("hidden_size")
    settings.expect("word_embed_proj_dim", features)
    settings.expect("layer_norm_elementwise_affine", True)
    before, bias = settings.boolean("do_layer_norm_before", True), settings.boolean("enable_bias", True)
    removed = settings.boolean("_remove_final_layer_norm", False)
    neurons = settings.per_layer("ffn_dim", settings.count("num_hidden_layers"))
    block = BlockConfig(
        arrangement="pre-norm" if before else "post-norm",
        features=features,
        heads=settings.divisor("num_attention_heads", "hidden_size"),
        neurons=neurons[0],
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        activation=settings.activation("activation_function", "relu"),
        epsilon=1e-5,
    )
    vocab = settings.integer("vocab_size")
    return Config(
        family="opt",
        blocks=blocks_of(block, neurons),
        vocab=vocab,
        positions=settings.integer("max_position_embeddings"),
        position_offset=FIRST_PLACE,
        final_norm=before and not removed,
        head=of_decoder(settings, vocab, tied=True, filler=1),
    )


def _layer(block: BlockConfig) -> list[Entry]:
    layer = "decoder.layers.{i}"
    return [
        *linear(f"{layer}.self_attn.q_proj", "block.attention.query", bias=block.attention_bias),
        *linear(f"{layer}.self_attn.k_proj", "block.attention.key", bias=block.attention_bias),
        *linear(f"{layer}.self_attn.v_proj", "block.attention.value", bias=block.attention_bias),
        *linear(f"{layer}.self_attn.out_proj", "block.attention.output", bias=block.output_bias),
        *norm(f"{layer}.self_attn_layer_norm", "block.norm_1"),
        *linear(f"{layer}.fc1", "block.mlp.input", bias=block.mlp_bias),
        *linear(f"{layer}.fc2", "block.mlp.output", bias=block.mlp_bias),
        *norm(f"{layer}.final_layer_norm", "block.norm_2"),
    ]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return [
        Entry("decoder.embed_tokens.weight", ("embedding.token",)),
        Entry("decoder.embed_positions.weight", ("embedding.position",)),
        *(entry for i, block in enumerate(config.blocks) for entry in in_layer(i, _layer(block))),
        *(norm("decoder.final_layer_norm", "final_norm") if config.final_norm else []),
        *unembedding(config),
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="model.",
    heads=r"lm_head\.weight|score\.weight",
    layer=r"decoder\.layers\.(\d{1,9})\.",
    ignored="decoder.version",
    copies={"lm_head.weight": "decoder.embed_tokens.weight"},
)
