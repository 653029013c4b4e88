"""The tensors of each kind of layer, by the names of Hugging Face's checkpoints."""

LAYER = "model.layers.0."
DECODER = [
    *("model.embed_tokens", "model.norm", "lm_head"),
    *(f"{LAYER}self_attn.{part}_proj" for part in "qkvo"),
    *(f"{LAYER}{norm}_layernorm" for norm in ("input", "post_attention")),
]
GATED = [f"{LAYER}mlp.{part}_proj" for part in ("gate", "up", "down")]
ROUTED = [f"{LAYER}mlp.gate", *(f"{LAYER}mlp.experts.{part}_proj" for part in ("gate", "up", "down"))]
MIXTRAL_ROUTED = [f"{LAYER}block_sparse_moe.{part}" for part in ("gate", "experts.w1", "experts.w2", "experts.w3")]
PLAIN = [f"{LAYER}mlp.{part}" for part in ("c_fc", "c_proj")]
PHI = [
    *("model.embed_tokens", "model.final_layernorm", "lm_head", f"{LAYER}input_layernorm"),
    *(f"{LAYER}self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "dense")),
    *(f"{LAYER}mlp.{part}" for part in ("fc1", "fc2")),
]
GPT2 = [
    *(f"transformer.{part}" for part in ("wte", "wpe", "ln_f")),
    *("lm_head", "transformer.h.0.ln_1", "transformer.h.0.ln_2"),
    *(f"transformer.h.0.{part}" for part in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")),
]
BERT = [
    *(
        f"embeddings.{part}"
        for part in ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
    ),
    *(f"encoder.layer.0.attention.self.{part}" for part in ("query", "key", "value")),
    *(f"encoder.layer.0.attention.output.{part}" for part in ("dense", "LayerNorm")),
    *(f"encoder.layer.0.{part}" for part in ("intermediate.dense", "output.dense", "output.LayerNorm")),
]
PHI3 = [
    *("model.embed_tokens", "model.norm", "lm_head"),
    *(f"{LAYER}{norm}_layernorm" for norm in ("input", "post_attention")),
    *(f"{LAYER}{part}" for part in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")),
]
NEOX = [
    *("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"),
    *(f"gpt_neox.layers.0.{norm}_layernorm" for norm in ("input", "post_attention")),
    *(f"gpt_neox.layers.0.attention.{part}" for part in ("query_key_value", "dense")),
    *(f"gpt_neox.layers.0.mlp.{part}" for part in ("dense_h_to_4h", "dense_4h_to_h")),
]
GPT_OSS = [
    *DECODER,
    *(f"{LAYER}{part}" for part in ("self_attn.sinks", "mlp.router")),
    *(f"{LAYER}mlp.experts.{part}_proj" for part in ("gate", "up", "down")),
]
QUERY_KEY_NORMS = [f"{LAYER}self_attn.{part}_norm" for part in "qk"]
OLMO = [name for name in DECODER + GATED + QUERY_KEY_NORMS if not name.endswith("input_layernorm")]
OLMO.append(f"{LAYER}post_feedforward_layernorm")
AROUND_MLP = [f"{LAYER}{place}_feedforward_layernorm" for place in ("pre", "post")]
