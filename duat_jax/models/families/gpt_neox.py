"""The GPT-NeoX family: configuration and tensor map of Hugging Face's `gpt_neox` checkpoints, Pythia among them."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families.family import Family, blocks_of
from duat_jax.models.families.heads import of_decoder, unembedding
from duat_jax.models.families.rotary import read_rotary
from duat_jax.models.families.tensor_map import Entry, head_by_head, in_layer, linear, norm, transposed
from duat_jax.nn.config import BlockConfig


def read_config(settings: Settings) -> Config:
    """Read the configuration of a GPT-NeoX checkpoint.

    Args:
        settings: its `config.json`.
    """
    features, heads = settings.integer("hidden_size"), settings.divisor("num_attention_heads", "hidden_size")
    base, partial = settings.number("rotary_emb_base", 10_000.0), settings.number("rotary_pct", 0.25)
    # Under these names they only count within `rope_parameters`.
    settings.expect("rope_theta", base)
    settings.expect("partial_rotary_factor", partial)
    positions = read_rotary(settings, features // heads, base=base, partial=partial, rounded=True)
    bias = settings.boolean("attention_bias", True)
    neurons = settings.per_layer("intermediate_size", settings.count("num_hidden_layers"))
    block = BlockConfig(
        arrangement="parallel" if settings.boolean("use_parallel_residual", True) else "pre-norm",
        features=features,
        heads=heads,
        neurons=neurons[0],
        rotary=positions.rotary,
        attention_bias=bias,
        output_bias=bias,
        activation=settings.activation("hidden_act", "gelu"),
        epsilon=settings.number("layer_norm_eps", 1e-5),
    )
    vocab = settings.integer("vocab_size")
    return Config(
        family="gpt_neox",
        blocks=blocks_of(block, neurons),
        vocab=vocab,
        positions=positions.longest,
        position_embedding=False,
        head=of_decoder(settings, vocab, tied=False),
    )


def _layer(block: BlockConfig) -> list[Entry]:
    parts = [f"block.attention.{part}" for part in ("query", "key", "value")]
    together = transposed(head_by_head(block.heads))
    return [
        *norm("layers.{i}.input_layernorm", "block.norm_1"),
        *linear("layers.{i}.attention.query_key_value", *parts, transform=together, bias=block.attention_bias),
        *linear("layers.{i}.attention.dense", "block.attention.output", bias=block.output_bias),
        *norm("layers.{i}.post_attention_layernorm", "block.norm_2"),
        *linear("layers.{i}.mlp.dense_h_to_4h", "block.mlp.input"),
        *linear("layers.{i}.mlp.dense_4h_to_h", "block.mlp.output"),
    ]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    return [
        Entry("embed_in.weight", ("embedding.token",)),
        *(entry for i, block in enumerate(config.blocks) for entry in in_layer(i, _layer(block))),
        *norm("final_layer_norm", "final_norm"),
        *unembedding(config, "embed_out.weight"),
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="gpt_neox.",
    heads=r"embed_out\.weight|score\.weight",
    layer=r"layers\.(\d{1,9})\.",
    ignored=r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
    copies={"embed_out.weight": "embed_in.weight"},
    modules={"lm_head": "embed_out"},
)
