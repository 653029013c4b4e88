"""The DistilBERT family: configuration and tensor map of Hugging Face's `distilbert` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import encoder
from duat_jax.models.families.family import Family
from duat_jax.models.families.tensor_map import Entry, in_every_layer, linear, norm
from duat_jax.nn.config import BlockConfig

EPSILON = 1e-12


def read_config(settings: Settings) -> Config:
    """Read the configuration of a DistilBERT checkpoint.

    Args:
        settings: its `config.json`.
    """
    encoder.refuse_decoders(settings)
    settings.expect("layer_norm_eps", EPSILON)
    settings.rename("hidden_size", "dim")
    settings.rename("num_attention_heads", "n_heads")
    settings.rename("num_hidden_layers", "n_layers")
    block = BlockConfig(
        arrangement="post-norm",
        features=settings.integer("dim"),
        heads=settings.divisor("n_heads", "dim"),
        neurons=settings.integer("hidden_dim"),
        activation=settings.activation("activation", "gelu"),
        causal=False,
        epsilon=EPSILON,
    )
    vocab = settings.integer("vocab_size")
    return Config(
        family="distilbert",
        blocks=(block,) * settings.count("n_layers"),
        vocab=vocab,
        positions=settings.integer("max_position_embeddings"),
        embedding_norm=True,
        final_norm=False,
        head=encoder.read_head(settings, vocab, masked=block.activation, pooled="relu"),
    )


BLOCK = [
    *linear("transformer.layer.{i}.attention.q_lin", "block.attention.query"),
    *linear("transformer.layer.{i}.attention.k_lin", "block.attention.key"),
    *linear("transformer.layer.{i}.attention.v_lin", "block.attention.value"),
    *linear("transformer.layer.{i}.attention.out_lin", "block.attention.output"),
    *norm("transformer.layer.{i}.sa_layer_norm", "block.norm_1"),
    *linear("transformer.layer.{i}.ffn.lin1", "block.mlp.input"),
    *linear("transformer.layer.{i}.ffn.lin2", "block.mlp.output"),
    *norm("transformer.layer.{i}.output_layer_norm", "block.norm_2"),
]
PREPARED = [*linear("vocab_transform", "head.dense"), *norm("vocab_layer_norm", "head.norm")]


def tensor_map(config: Config) -> list[Entry]:
    """Return the table of stored tensors and the parameters that they become.

    Args:
        config: the checkpoint's parts.
    """
    heads = {
        "masked token": encoder.masked_token_tensors(config, PREPARED, "vocab_projector", "vocab_projector.bias"),
        "classes": [
            *linear("pre_classifier", "head.dense"),
            *encoder.logits("classifier.weight", "classifier.bias"),
        ],
        "hidden": [],
    }
    return [
        Entry("embeddings.word_embeddings.weight", ("embedding.token",)),
        Entry("embeddings.position_embeddings.weight", ("embedding.position",)),
        *norm("embeddings.LayerNorm", "embedding_norm"),
        *in_every_layer(config.layers, BLOCK),
        *heads[config.head.kind],
    ]


FAMILY = Family(
    read_config,
    tensor_map,
    prefix="distilbert.",
    heads=r"(vocab_transform|vocab_layer_norm|vocab_projector|pre_classifier|classifier|qa_outputs)\..*",
    layer=r"transformer\.layer\.(\d{1,9})\.",
    ignored=encoder.POSITION_IDS,
    copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
)
