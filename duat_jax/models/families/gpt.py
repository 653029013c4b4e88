"""GPT-2 and the decoders of its time: LayerNorm, plain MLPs with biases, and mostly learned positions."""

from itertools import islice
from typing import Any

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.models.config import Config
from duat_jax.models.families import decoder
from duat_jax.models.families.decoder import biases, flag
from duat_jax.models.families.names import QUERY_KEY_VALUE, Names
from duat_jax.models.families.rotary import Positions, read_rotary
from duat_jax.models.families.tensor_map import AS_IT_IS, SIDE_BY_SIDE, Transform, head_by_head, transposed
from duat_jax.nn.config import BlockConfig
from duat_jax.nn.position import Rotary, rotary_frequencies

GPT2 = Names(
    layer="h.{i}.",
    parts={
        "norm_1": "ln_1",
        QUERY_KEY_VALUE: ("attn.c_attn", SIDE_BY_SIDE),
        "attention.output": ("attn.c_proj", AS_IT_IS),
        "norm_2": "ln_2",
        "mlp.input": ("mlp.c_fc", AS_IT_IS),
        "mlp.output": ("mlp.c_proj", AS_IT_IS),
    },
    outside={"embedding.token": "wte", "embedding.position": "wpe", "final_norm": "ln_f"},
    heads=decoder.LOGITS,
)

KINDS = ("global", "local")
"""The attention types of a layer of GPT-Neo."""


def _scaled_by_layer(settings: Settings, config: Config) -> Config:
    """GPT-2: the scores may be unscaled, or scaled by the layer's number too."""
    usual = (config.blocks[0].head_features or 1) ** -0.5
    scale = usual if settings.boolean("scale_attn_weights", True) else 1.0
    by_layer = settings.boolean("scale_attn_by_inverse_layer_idx", False)
    scales = [scale / (i + 1 if by_layer else 1) for i in range(config.layers)]
    return decoder.with_blocks(config, scale=tuple(None if scale == usual else scale for scale in scales))


def _local_windows(settings: Settings, config: Config) -> Config:
    """GPT-Neo: some layers are local, by a list or by turns of kinds with the number of their repetitions."""
    groups = settings.values.get("attention_types")
    settings.ignore("attention_types")
    try:
        turns = [(kinds, range(count)) for kinds, count in groups or [[list(KINDS), config.layers // 2]] if kinds]
        # No longer than it may be, so that an absurd number takes no time.
        by_turns = tuple(islice((kind for kinds, count in turns for _ in count for kind in kinds), config.layers + 1))
    except (TypeError, ValueError):
        by_turns = ()
    kinds = settings.choices("attention_layers", KINDS, config.layers) or by_turns
    if len(kinds) != config.layers or any(kind not in KINDS for kind in kinds):
        settings.problems.append(f"attention_types must give {' or '.join(KINDS)} for each of {config.layers} layers")
        kinds = KINDS[:1] * config.layers
    size = settings.integer("window_size", 256)
    return decoder.with_blocks(config, window=tuple(size if kind == "local" else None for kind in kinds))


def _rotary_of_gptj(settings: Settings, head_features: int) -> Positions:
    """Read the rotary positions of GPT-J."""
    turned = settings.count("rotary_dim")
    if turned % 2:
        settings.problems.append(f"rotary_dim = {turned} isn't a number of pairs")
    return Positions(Rotary(rotary_frequencies(turned), interleaved=True), settings.integer("n_positions"))


def _rotary_of_gpt_neox(settings: Settings, head_features: int) -> Positions:
    """Read the rotary positions of GPT-NeoX, whose older names only count outside of `rope_parameters`."""
    base, partial = settings.number("rotary_emb_base", 10_000.0), settings.number("rotary_pct", 0.25)
    settings.expect("rope_theta", base)
    settings.expect("partial_rotary_factor", partial)
    return read_rotary(settings, head_features, base=base, partial=partial, rounded=True)


def _of_one_width(settings: Settings, config: Config) -> Config:
    """OPT: note a problem for embeddings of another width."""
    settings.expect("word_embed_proj_dim", config.features)
    return config


def _by_head(block: BlockConfig) -> Transform:
    """Return the transform of queries, keys and values that are stored head by head, or of one key/value head."""
    return transposed(SIDE_BY_SIDE if block.key_value_heads == 1 else head_by_head(block.heads))


GPT: dict[str, Any] = {
    "names": GPT2,
    "prefix": "transformer.",
    "ignored": r"h\.\d+\.attn\.(attention\.)?(bias|masked_bias|embed_positions)",
    "grouped": False,
    "rotary": None,
    "activation": ("activation_function", "gelu_new"),
    "epsilon": ("layer_norm_epsilon", 1e-5),
    "widening": 4,
    "attention_bias": True,
    "output_bias": True,
    "mlp": "plain",
    "mlp_bias": True,
    "norm": "layer",
}
"""The differences from Llama that these decoders have in common."""

FIELDS = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
}
"""GPT-2's names of fields."""

FAMILIES = decoder.families(
    {
        "gpt2": {
            **GPT,
            "fields": FIELDS,
            "expect": {"add_cross_attention": False, "is_encoder_decoder": False, "pruned_heads": {}},
            "tied": True,
            "adjust": _scaled_by_layer,
        },
        "gpt_bigcode": {
            **GPT,
            "names": GPT2.but(
                {
                    QUERY_KEY_VALUE: ("attn.c_attn", _by_head),
                    "attention.output": "attn.c_proj",
                    "mlp.input": "mlp.c_fc",
                    "mlp.output": "mlp.c_proj",
                }
            ),
            "fields": FIELDS,
            "expect": {"add_cross_attention": False},
            "tied": True,
            "activation": ("activation_function", "gelu_pytorch_tanh"),
            "key_value_heads": lambda settings: 1 if settings.boolean("multi_query", True) else None,
            "scale": lambda settings: None if settings.boolean("scale_attn_weights", True) else 1.0,
            "harmless": ("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "num_key_value_heads"),
        },
        "gpt_neo": {
            **GPT,
            "names": GPT2.but(
                {
                    "attention.query": "attn.attention.q_proj",
                    "attention.key": "attn.attention.k_proj",
                    "attention.value": "attn.attention.v_proj",
                    "attention.output": "attn.attention.out_proj",
                    "mlp.input": "mlp.c_fc",
                    "mlp.output": "mlp.c_proj",
                }
            ),
            "fields": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
            "tied": True,
            "attention_bias": False,
            "scale": 1.0,
            "adjust": _local_windows,
        },
        "gptj": {
            **GPT,
            "names": GPT2.but(
                {
                    ("norm_1", "norm_2"): "ln_1",
                    "attention.query": "attn.q_proj",
                    "attention.key": "attn.k_proj",
                    "attention.value": "attn.v_proj",
                    "attention.output": "attn.out_proj",
                    "mlp.input": "mlp.fc_in",
                    "mlp.output": "mlp.fc_out",
                }
            ),
            "fields": FIELDS,
            "expect": {"scale_attn_weights": True, "rotary": True},
            "rotary": _rotary_of_gptj,
            "arrangement": "parallel",
            "attention_bias": False,
            "output_bias": False,
            "read_out": {"bias": True},
        },
        "gpt_neox": {
            **GPT,
            "names": Names(
                parts={
                    "norm_1": "input_layernorm",
                    QUERY_KEY_VALUE: ("attention.query_key_value", _by_head),
                    "attention.output": "attention.dense",
                    "norm_2": "post_attention_layernorm",
                    "mlp.input": "mlp.dense_h_to_4h",
                    "mlp.output": "mlp.dense_4h_to_h",
                },
                outside={"embedding.token": "embed_in", "final_norm": "final_layer_norm"},
                heads={**decoder.LOGITS, "next token": {"logits": "embed_out"}},
            ),
            "prefix": "gpt_neox.",
            "ignored": r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
            "modules": {"lm_head": "embed_out"},
            "rotary": _rotary_of_gpt_neox,
            "arrangement": lambda settings: (
                "parallel" if settings.boolean("use_parallel_residual", True) else "pre-norm"
            ),
            **biases(default=True),
            "activation": ("hidden_act", "gelu"),
            "epsilon": ("layer_norm_eps", 1e-5),
            "widening": None,
        },
        "opt": {
            **GPT,
            "names": Names(
                layer="decoder.layers.{i}.",
                parts={
                    **decoder.ATTENTION,
                    "attention.output": "self_attn.out_proj",
                    "norm_1": "self_attn_layer_norm",
                    "mlp.input": "fc1",
                    "mlp.output": "fc2",
                    "norm_2": "final_layer_norm",
                },
                outside={
                    "embedding.token": "decoder.embed_tokens",
                    "embedding.position": "decoder.embed_positions",
                    "final_norm": "decoder.final_layer_norm",
                },
                heads=decoder.LOGITS,
            ),
            "prefix": "model.",
            "ignored": "decoder.version",
            "fields": {"intermediate_size": "ffn_dim"},
            "expect": {"layer_norm_elementwise_affine": True},
            "tied": True,
            "filler": 1,
            "arrangement": lambda settings: (
                "pre-norm" if settings.boolean("do_layer_norm_before", True) else "post-norm"
            ),
            **biases("enable_bias", True),
            "mlp_bias": flag("enable_bias", True),
            "activation": ("activation_function", "relu"),
            "epsilon": 1e-5,
            "widening": None,
            "outside": {
                "position_offset": 2,  # the row of the first position in the position embedding
                "final_norm": lambda settings: (
                    settings.boolean("do_layer_norm_before", True)
                    and not settings.boolean("_remove_final_layer_norm", False)
                ),
            },
            "adjust": _of_one_width,
        },
    }
)
