"""The BERT family: configuration and tensor map of Hugging Face's `bert` checkpoints, sentence encoders too."""

from functools import partial

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.checkpoint.tensors import Tensors
from duat_jax.models.config import Config
from duat_jax.models.families.tensor_map import FIRST_ROW, TRANSPOSED, Entry, fill_from, in_every_layer, linear, norm
from duat_jax.models.transformer import Transformer
from duat_jax.nn.config import BlockConfig

PREFIX = "bert."
IGNORED = r"embeddings\.position_ids|pooler\..*|cls\..*|classifier\..*"
HEADS = r"(cls|classifier)\..*"
LAYER = r"encoder\.layer\.(\d{1,9})\."
OLDER = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

_TRAINING = "attention_probs_dropout_prob hidden_dropout_prob"
_HEADS = """
    classifier_dropout pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    tie_word_embeddings
"""
# A single text is all of segment 0, however many there are.
_OTHERS = "type_vocab_size"
HARMLESS = frozenset(f"{_TRAINING} {_HEADS} {_OTHERS}".split())
"""Fields of this family that leave the computation as it is."""

_transposed = partial(linear, transform=TRANSPOSED)

BLOCK = [
    *_transposed("encoder.layer.{i}.attention.self.query", "block.attention.query"),
    *_transposed("encoder.layer.{i}.attention.self.key", "block.attention.key"),
    *_transposed("encoder.layer.{i}.attention.self.value", "block.attention.value"),
    *_transposed("encoder.layer.{i}.attention.output.dense", "block.attention.output"),
    *norm("encoder.layer.{i}.attention.output.LayerNorm", "block.norm_1"),
    *_transposed("encoder.layer.{i}.intermediate.dense", "block.mlp.input"),
    *_transposed("encoder.layer.{i}.output.dense", "block.mlp.output"),
    *norm("encoder.layer.{i}.output.LayerNorm", "block.norm_2"),
]


def read_config(settings: Settings) -> Config:
    """Return the parts of a BERT checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("position_embedding_type", "absolute")
    settings.expect("is_decoder", False)
    settings.expect("add_cross_attention", False)
    settings.expect("is_encoder_decoder", False)
    settings.expect("pruned_heads", {})
    settings.expect("directionality", "bidi")
    block = BlockConfig(
        arrangement="post-norm",
        features=settings.integer("hidden_size"),
        heads=settings.divisor("num_attention_heads", "hidden_size"),
        neurons=settings.integer("intermediate_size"),
        activation=settings.activation("hidden_act", "gelu"),
        epsilon=settings.number("layer_norm_eps", 1e-12),
    )
    return Config(
        family="bert",
        block=block,
        layers=settings.integer("num_hidden_layers"),
        vocab=settings.integer("vocab_size"),
        positions=settings.integer("max_position_embeddings"),
        causal=False,
        segment_embedding=True,
        embedding_norm=True,
        final_norm=False,
        head="hidden",
    )


def tensor_map(config: Config) -> list[Entry]:
    """Return which stored tensor becomes which parameters.

    Args:
        config: the checkpoint's parts.
    """
    return [
        Entry("embeddings.word_embeddings.weight", ("token_embedding",)),
        Entry("embeddings.position_embeddings.weight", ("position_embedding",)),
        # A single text is all of segment 0.
        Entry("embeddings.token_type_embeddings.weight", ("segment_embedding",), FIRST_ROW),
        *norm("embeddings.LayerNorm", "embedding_norm"),
        *in_every_layer(config.layers, BLOCK),
    ]


def fill(model: Transformer, tensors: Tensors) -> None:
    """Put a checkpoint's tensors into a model.

    Args:
        model: the model, of the checkpoint's shape.
        tensors: the checkpoint's tensors.
    """
    fill_from(tensor_map(model.config), model, tensors)
