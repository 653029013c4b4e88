"""Configurations drawn at random, family by family: sizes, windows, scalings, caps, experts, biases, activations."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from .family import ABSENT, Settings
from .llamas import GRANITE
from .makers import TEXT_CONFIG

Strategy = st.SearchStrategy

ACTIVATIONS = st.sampled_from(["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "tanh"])
EPSILON = st.sampled_from([1e-12, 1e-5, 1e-2])
WINDOW = st.integers(1, 14)
LAYERS = st.integers(1, 3)
CAP = st.sampled_from([None, 0.5, 5.0, 50.0])
LIMIT = st.sampled_from([0.5, 7.0])
THETA = st.sampled_from([10.0, 100.0, 10_000, 1_000_000.0])
FACTOR = st.sampled_from([1.0, 1.5, 4.0, 32.0])
CONTEXTS, LONG_ENOUGH = (8, 16, 64), 16
CONTEXT = st.sampled_from(CONTEXTS)
FLAG = st.booleans()
SCALE = st.sampled_from([0.1, 1.0, 12.0])


def _some(**fields: Strategy) -> Strategy[Settings]:
    """Draw some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def _factors(rotated: int) -> Strategy[list[float]]:
    return st.lists(st.sampled_from([1.0, 1.5, 4.0, 9.0]), min_size=rotated // 2, max_size=rotated // 2)


def _scaling(kind: str, rotated: int) -> Strategy[Settings]:
    """Draw the settings of one kind of scaling for a number of rotated features."""
    factor = st.fixed_dictionaries({"factor": FACTOR})
    context = st.fixed_dictionaries({"original_max_position_embeddings": CONTEXT})
    attention = st.sampled_from([0.5, 1.0, 1.5])
    parts: dict[str, list[Strategy[Settings]]] = {
        "default": [],
        "linear": [factor],
        "dynamic": [factor],
        "llama3": [
            factor,
            context,
            st.fixed_dictionaries(
                {"low_freq_factor": st.sampled_from([0.5, 1.0]), "high_freq_factor": st.sampled_from([2.0, 4.0])}
            ),
        ],
        "yarn": [
            factor,
            context,
            _some(
                attention_factor=attention,
                beta_fast=st.sampled_from([2, 8.0, 32]),
                beta_slow=st.sampled_from([0.5, 1]),
                mscale=attention,
                mscale_all_dim=attention,
                truncate=FLAG,
            ),
        ],
        "longrope": [
            factor,
            context,
            st.fixed_dictionaries({"short_factor": _factors(rotated), "long_factor": _factors(rotated)}),
            _some(attention_factor=attention),
        ],
    }
    return st.tuples(*parts[kind]).map(lambda drawn: {key: value for part in drawn for key, value in part.items()})


def _context(scaling: Settings) -> Strategy[int]:
    """Draw a context that holds the texts; dynamic positions are made for longer ones by their factor."""
    factor = scaling["factor"] if scaling.get("rope_type") == "dynamic" else 1
    return st.sampled_from([context for context in CONTEXTS if context * factor >= LONG_ENOUGH])


@st.composite
def _rotary(draw: Callable, rotated: int) -> Settings:
    """Draw rotary positions in the older or the newer spelling."""
    kind = draw(st.sampled_from(["default", "linear", "dynamic", "llama3", "yarn", "longrope"]))
    scaling, theta = {"rope_type": kind, **draw(_scaling(kind, rotated))}, draw(THETA)
    context = {"max_position_embeddings": draw(_context(scaling))}
    if draw(FLAG):
        newer = {"rope_theta": ABSENT, "rope_scaling": ABSENT, "rope_parameters": {**scaling, "rope_theta": theta}}
        return {**context, **newer}
    older = {"rope_scaling": ABSENT if kind == "default" else scaling}
    return {**context, "rope_theta": theta, **older}


@st.composite
def _decoder(
    draw: Callable, rotary: bool = True, layer_types: bool = False, epsilon: str = "rms_norm_eps", **fields: Strategy
) -> Settings:
    """Draw a decoder with grouped heads of their own size."""
    heads, head = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([4, 6, 8]))
    layers = draw(LAYERS)
    drawn: Settings = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in (1, 2, 4) if heads % n == 0])),
        "head_dim": head,
        **draw(_some(tie_word_embeddings=FLAG, intermediate_size=st.sampled_from([8, 24]), **{epsilon: EPSILON})),
        **draw(_some(**fields)),
    }
    if rotary:
        drawn.update(draw(_rotary(head)))
    if layer_types and draw(FLAG):
        kinds = st.sampled_from(["sliding_attention", "full_attention"])
        drawn["layer_types"] = draw(st.lists(kinds, min_size=layers, max_size=layers))
    return drawn


@st.composite
def _qwen(draw: Callable, **fields: Strategy) -> Settings:
    windows = draw(FLAG)
    drawn = draw(_decoder(layer_types=windows, hidden_act=ACTIVATIONS, max_window_layers=st.integers(0, 3), **fields))
    return {**drawn, "use_sliding_window": windows, "sliding_window": draw(WINDOW)}


@st.composite
def _phi3(draw: Callable) -> Settings:
    """Draw partly rotated heads, whose scaling has one factor for each pair of features."""
    drawn = draw(_decoder(rotary=False, hidden_act=ACTIVATIONS, sliding_window=st.none() | WINDOW))
    del drawn["head_dim"]
    rotated = 16 // drawn["num_attention_heads"] // 2
    partial = draw(FLAG) and rotated % 2 == 0
    drawn |= {"partial_rotary_factor": 0.5 if partial else 1.0, "rope_theta": draw(THETA)}
    drawn |= {"max_position_embeddings": draw(_context({})), "original_max_position_embeddings": draw(CONTEXT)}
    if draw(FLAG):
        factors = _factors(rotated if partial else 2 * rotated)
        drawn["rope_scaling"] = {"type": "longrope", "short_factor": draw(factors), "long_factor": draw(factors)}
    return drawn


@st.composite
def _gemma3(draw: Callable) -> Settings:
    drawn = draw(_decoder(rotary=False, layer_types=True, **_GEMMA))
    drawn |= draw(_some(rope_theta=THETA, rope_local_base_freq=THETA, sliding_window_pattern=st.integers(1, 3)))
    kind = draw(st.sampled_from(["linear", "llama3", "yarn"]))
    scaling = {"rope_type": kind, **draw(_scaling(kind, drawn["head_dim"]))}
    return {**drawn, "layer_types": drawn.get("layer_types", ABSENT), **draw(_some(rope_scaling=st.just(scaling)))}


@st.composite
def _olmo3(draw: Callable) -> Settings:
    drawn = draw(
        _decoder(rotary=False, layer_types=True, hidden_act=ACTIVATIONS, attention_bias=FLAG, sliding_window=WINDOW)
    )
    parameters = {}
    for layers in ("sliding_attention", "full_attention"):
        kind = draw(st.sampled_from(["default", "linear", "llama3", "yarn"]))
        scaling = draw(_scaling(kind, drawn["head_dim"]))
        parameters[layers] = {"rope_type": kind, "rope_theta": draw(THETA), **scaling}
    older = {"rope_type": "yarn", **draw(_scaling("yarn", drawn["head_dim"]))}
    rotary = draw(st.sampled_from([{"rope_parameters": parameters}, {"rope_scaling": older}, {}]))
    return {**drawn, "layer_types": drawn.get("layer_types", ABSENT), **rotary}


@st.composite
def _windowed(draw: Callable, **fields: Strategy) -> Settings:
    """Draw windows in some layers, or a period of layers with full attention."""
    drawn = draw(_decoder(layer_types=True, hidden_act=ACTIVATIONS, sliding_window=WINDOW, **fields))
    return {**drawn, "layer_types": drawn.get("layer_types", ABSENT)}


@st.composite
def _helium(draw: Callable) -> Settings:
    """Draw heads that are as wide as the stream together."""
    drawn = draw(_decoder(hidden_act=ACTIVATIONS, attention_bias=FLAG, mlp_bias=FLAG))
    return {**drawn, "hidden_size": drawn["num_attention_heads"] * drawn["head_dim"]}


@st.composite
def _olmoe(draw: Callable) -> Settings:
    """Draw heads that are as wide as the stream together, and experts."""
    flags = {"attention_bias": FLAG, "norm_topk_prob": FLAG, "num_experts": st.integers(2, 5)}
    drawn = draw(_decoder(hidden_act=ACTIVATIONS, num_experts_per_tok=st.integers(1, 2), **flags))
    return {**drawn, "hidden_size": drawn["num_attention_heads"] * drawn["head_dim"]}


@st.composite
def _gemma3_with_images(draw: Callable) -> Settings:
    drawn = draw(_gemma3())
    tied, _ = drawn.pop("tie_word_embeddings", ABSENT), drawn.pop("final_logit_softcapping", None)
    text = {name: value for name, value in {**TEXT_CONFIG, **drawn}.items() if value is not ABSENT}
    return {"text_config": text, "tie_word_embeddings": tied}


@st.composite
def _smollm3(draw: Callable) -> Settings:
    drawn = draw(_qwen(attention_bias=FLAG, mlp_bias=FLAG, no_rope_layer_interval=st.integers(1, 3)))
    turned = draw(st.none() | st.lists(st.integers(0, 1), min_size=3, max_size=4))
    return {**drawn, "no_rope_layers": turned}


@st.composite
def _partly(draw: Callable, usual: float, **fields: Strategy) -> Settings:
    """Draw partly rotated heads."""
    drawn = draw(_decoder(rotary=False, epsilon="layer_norm_eps", hidden_act=ACTIVATIONS, **fields))
    kind = draw(st.sampled_from(["default", "linear", "dynamic", "llama3", "yarn"]))
    scaling = {"rope_type": kind, **draw(_scaling(kind, 8))}
    drawn |= {} if kind == "default" else {"rope_scaling": scaling}
    drawn |= {"head_dim": ABSENT, "partial_rotary_factor": draw(st.sampled_from([usual, 0.5, 1.0]))}
    return {**drawn, "rope_theta": draw(THETA), "max_position_embeddings": draw(_context(scaling))}


@st.composite
def _gpt_neox(draw: Callable) -> Settings:
    kind = draw(st.sampled_from(["default", "linear", "dynamic", "llama3", "yarn", "longrope"]))
    drawn = draw(
        _some(
            num_hidden_layers=LAYERS,
            hidden_act=ACTIVATIONS,
            use_parallel_residual=FLAG,
            attention_bias=FLAG,
            tie_word_embeddings=FLAG,
            layer_norm_eps=EPSILON,
            rotary_emb_base=THETA,
        )
    )
    heads, width = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([4, 5, 6, 8, 9]))
    share = draw(st.sampled_from([0.1, 0.25, 0.4, 0.5, 0.7, 0.75, 1.0]))
    drawn |= {"num_attention_heads": heads, "hidden_size": heads * width, "rotary_pct": share}
    scaling = {"rope_type": kind, **draw(_scaling(kind, int(width * share) + 1))}
    drawn["max_position_embeddings"] = draw(_context(scaling))
    return drawn if kind == "default" else {**drawn, "rope_scaling": scaling}


_GEMMA = {
    "hidden_activation": ACTIVATIONS,
    "query_pre_attn_scalar": st.integers(1, 64),
    "sliding_window": WINDOW,
    "final_logit_softcapping": CAP,
    "attention_bias": FLAG,
}
_EXPERTS = {"num_local_experts": st.integers(2, 5), "num_experts_per_tok": st.integers(1, 2)}
_SMALL = {"num_hidden_layers": LAYERS, "num_attention_heads": st.sampled_from([1, 4])}
_BERT = {**_SMALL, "hidden_act": ACTIVATIONS, "layer_norm_eps": EPSILON, "tie_word_embeddings": FLAG}
_GPT2 = {
    "n_layer": LAYERS,
    "n_inner": st.sampled_from([None, 8, 20]),
    "activation_function": ACTIVATIONS,
    "layer_norm_epsilon": EPSILON,
    "tie_word_embeddings": FLAG,
}

DRAWS: dict[str, Strategy[dict[str, Any]]] = {
    "gpt2": _some(
        **_GPT2,
        n_head=st.sampled_from([1, 4]),
        scale_attn_weights=FLAG,
        scale_attn_by_inverse_layer_idx=FLAG,
        reorder_and_upcast_attn=FLAG,
    ),
    "bert": _some(**_BERT, type_vocab_size=st.integers(1, 3)),
    "roberta": _some(**_BERT, pad_token_id=st.integers(0, 8)),
    "xlm-roberta": _some(**_BERT, pad_token_id=st.integers(0, 8)),
    "camembert": _some(**_BERT, pad_token_id=st.integers(0, 8)),
    "electra": _some(**_BERT, embedding_size=st.sampled_from([6, 16])),
    "distilbert": _some(
        n_layers=LAYERS, n_heads=st.sampled_from([1, 4]), activation=ACTIVATIONS, tie_word_embeddings=FLAG
    ),
    "gpt_neox": _gpt_neox(),
    "llama": _decoder(hidden_act=ACTIVATIONS, attention_bias=FLAG, mlp_bias=FLAG),
    "mistral": _decoder(hidden_act=ACTIVATIONS, sliding_window=st.none() | WINDOW),
    "qwen2": _qwen(),
    "qwen3": _qwen(attention_bias=FLAG),
    "gemma2": _decoder(layer_types=True, attn_logit_softcapping=CAP, **_GEMMA),
    "mixtral": _decoder(hidden_act=ACTIVATIONS, sliding_window=st.none() | WINDOW, **_EXPERTS),
    "vit": _some(
        **_SMALL,
        hidden_act=ACTIVATIONS,
        layer_norm_eps=EPSILON,
        qkv_bias=FLAG,
        num_channels=st.integers(1, 3),
        image_size=st.sampled_from([8, 12, [8, 12], [13, 9]]),
        patch_size=st.sampled_from([2, 4]),
    ),
    "gemma3_text": _gemma3(),
    "qwen3_moe": _decoder(
        hidden_act=ACTIVATIONS,
        attention_bias=FLAG,
        norm_topk_prob=FLAG,
        decoder_sparse_step=st.integers(1, 3),
        mlp_only_layers=st.lists(st.integers(0, 2), max_size=2, unique=True),
        num_experts=st.integers(2, 5),
        moe_intermediate_size=st.sampled_from([4, 12]),
    ),
    "phi3": _phi3(),
    "gpt_oss": _decoder(
        layer_types=True,
        attention_bias=FLAG,
        sliding_window=WINDOW,
        swiglu_limit=st.sampled_from([0.5, 7.0]),
        **_EXPERTS,
    ),
    "olmo2": _decoder(hidden_act=ACTIVATIONS, attention_bias=FLAG),
    "starcoder2": _decoder(
        epsilon="norm_epsilon", hidden_act=ACTIVATIONS, sliding_window=st.none() | WINDOW, use_bias=FLAG
    ),
    "smollm3": _smollm3(),
    "olmo3": _olmo3(),
    "gemma": _decoder(hidden_act=ACTIVATIONS, attention_bias=FLAG),
    "phi": _partly(0.5),
    "stablelm": _partly(0.25, use_parallel_residual=FLAG, use_qkv_bias=FLAG),
    "granite": _decoder(hidden_act=ACTIVATIONS, attention_bias=FLAG, mlp_bias=FLAG, **dict.fromkeys(GRANITE, SCALE)),
    "cohere": _decoder(epsilon="layer_norm_eps", hidden_act=ACTIVATIONS, attention_bias=FLAG, logit_scale=SCALE),
    "ministral": _windowed(),
    "exaone4": _windowed(sliding_window_pattern=st.integers(1, 3)),
    "cohere2": _windowed(
        epsilon="layer_norm_eps", sliding_window_pattern=st.integers(1, 3), attention_bias=FLAG, logit_scale=SCALE
    ),
    "seed_oss": _decoder(hidden_act=ACTIVATIONS, attention_bias=FLAG, attention_out_bias=FLAG, mlp_bias=FLAG),
    "helium": _helium(),
    "ernie4_5": _decoder(hidden_act=ACTIVATIONS, use_bias=FLAG),
    **dict.fromkeys(
        ("glm", "glm4"),
        _decoder(
            rotary=False,
            hidden_act=ACTIVATIONS,
            attention_bias=FLAG,
            rope_theta=THETA,
            partial_rotary_factor=st.sampled_from([0.5, 1.0]),
        ),
    ),
    "olmoe": _olmoe(),
    "granitemoe": _decoder(hidden_act=ACTIVATIONS, attention_bias=FLAG, **_EXPERTS, **dict.fromkeys(GRANITE, SCALE)),
    "gemma3": _gemma3_with_images(),
    "gpt_bigcode": _some(**_GPT2, n_head=st.sampled_from([1, 4]), multi_query=FLAG, scale_attn_weights=FLAG),
    "gpt_neo": _some(
        num_heads=st.sampled_from([1, 4]),
        attention_types=st.sampled_from(
            [[[["global", "local"], 1]], [[["local"], 2]], [[["local"], 1], [["global"], 1]]]
        ),
        window_size=WINDOW,
        intermediate_size=st.sampled_from([None, 8, 20]),
        activation_function=ACTIVATIONS,
        layer_norm_epsilon=EPSILON,
        tie_word_embeddings=FLAG,
    ),
    "opt": _some(
        **_SMALL,
        activation_function=ACTIVATIONS,
        tie_word_embeddings=FLAG,
        do_layer_norm_before=FLAG,
        _remove_final_layer_norm=FLAG,
        enable_bias=FLAG,
    ),
    "gptj": _some(**_GPT2, n_head=st.sampled_from([1, 2]), rotary_dim=st.sampled_from([2, 4, 8])),
    "albert": _some(**_BERT, embedding_size=st.sampled_from([6, 16]), num_hidden_groups=st.just(1)),
    "modernbert": _some(
        num_hidden_layers=LAYERS,
        num_attention_heads=st.sampled_from([1, 2, 4]),
        hidden_activation=ACTIVATIONS,
        norm_eps=EPSILON,
        norm_bias=FLAG,
        attention_bias=FLAG,
        mlp_bias=FLAG,
        decoder_bias=FLAG,
        tie_word_embeddings=FLAG,
        local_attention=st.integers(1, 16),
        global_attn_every_n_layers=st.integers(1, 3),
        global_rope_theta=THETA,
        local_rope_theta=THETA,
        classifier_pooling=st.sampled_from(["cls", "mean"]),
        classifier_bias=FLAG,
        classifier_activation=ACTIVATIONS,
    ),
}
"""What is changed of each family's base."""
