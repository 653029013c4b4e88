"""The GPT-2 family: configuration and tensor map of Hugging Face's `gpt2` checkpoints."""

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.checkpoint.tensors import Tensors
from duat_jax.models.config import Config
from duat_jax.models.families.tensor_map import SIDE_BY_SIDE, Entry, fill_from, in_every_layer, linear, norm
from duat_jax.models.transformer import Transformer
from duat_jax.nn.config import BlockConfig

PREFIX = "transformer."
IGNORED = r"h\.\d+\.attn\.(bias|masked_bias)"
HEADS = r"lm_head\.weight"
LAYER = r"h\.(\d{1,9})\."
OLDER: dict[str, str] = {}

_TRAINING = "attn_pdrop embd_pdrop resid_pdrop"
_HEADS = """
    n_special predict_special_tokens summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj
"""
# The size of a causal mask that was stored once; in which order and precision scores are computed; and a GPT-2 is a
# decoder, whatever the field says.
_OTHERS = "n_ctx reorder_and_upcast_attn is_decoder"
HARMLESS = frozenset(f"{_TRAINING} {_HEADS} {_OTHERS}".split())
"""Fields of this family that leave the computation as it is."""

BLOCK = [
    *norm("h.{i}.ln_1", "block.norm_1"),
    *linear(
        "h.{i}.attn.c_attn",
        *(f"block.attention.{part}" for part in ("query", "key", "value")),
        transform=SIDE_BY_SIDE,
    ),
    *linear("h.{i}.attn.c_proj", "block.attention.output"),
    *norm("h.{i}.ln_2", "block.norm_2"),
    *linear("h.{i}.mlp.c_fc", "block.mlp.input"),
    *linear("h.{i}.mlp.c_proj", "block.mlp.output"),
]


def read_config(settings: Settings) -> Config:
    """Return the parts of a GPT-2 checkpoint.

    Args:
        settings: its `config.json`.
    """
    settings.expect("scale_attn_weights", True)
    settings.expect("scale_attn_by_inverse_layer_idx", False)
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
    features = settings.integer("n_embd")
    block = BlockConfig(
        arrangement="pre-norm",
        features=features,
        heads=settings.divisor("n_head", "n_embd"),
        neurons=settings.integer("n_inner", 4 * features),
        activation=settings.activation("activation_function", "gelu_new"),
        epsilon=settings.number("layer_norm_epsilon", 1e-5),
    )
    return Config(
        family="gpt2",
        block=block,
        layers=settings.integer("n_layer"),
        vocab=settings.integer("vocab_size"),
        positions=settings.integer("n_positions"),
        tied=settings.boolean("tie_word_embeddings", True),
    )


def tensor_map(config: Config) -> list[Entry]:
    """Return which stored tensor becomes which parameters.

    Args:
        config: the checkpoint's parts.
    """
    return [
        Entry("wte.weight", ("token_embedding",)),
        Entry("wpe.weight", ("position_embedding",)),
        *in_every_layer(config.layers, BLOCK),
        *norm("ln_f", "final_norm"),
        *([] if config.tied else [Entry("lm_head.weight", ("separate_unembedding",))]),
    ]


def fill(model: Transformer, tensors: Tensors) -> None:
    """Put a checkpoint's tensors into a model.

    Args:
        model: the model, of the checkpoint's shape.
        tensors: the checkpoint's tensors.
    """
    fill_from(tensor_map(model.config), model, tensors)
    if model.config.tied:
        tensors.ignore_copy("lm_head.weight", model.token_embedding.get_value(), "wte.weight")
