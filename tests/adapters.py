"""Random adapters, and a small model for them."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.lora.adapter import new_adapters
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised

IDS = jnp.array([5, 7, 9, 3, 10])
TOKEN = 4


def random_adapters(model, modules=(), *, rank=2, size=0.3, key=0):
    random = np.random.default_rng(key)
    adapters = new_adapters(model, modules, rank=rank, alpha=3.0, seed=key)
    return {
        name: one._replace(up=jnp.asarray(size * random.normal(size=one.up.shape), one.up.dtype))
        for name, one in adapters.items()
    }


def small_model(layers=1, *, final_norm=True, cap=None, head=None, **settings):
    block = BlockConfig(arrangement="pre-norm", features=6, heads=2, neurons=10, **settings)
    head = head or Head(kind="next token", outputs=11, tied=True, cap=cap)
    config = duat.models.Config(
        family="gpt2", blocks=(block,) * layers, vocab=11, positions=8, final_norm=final_norm, head=head
    )
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


SELECTIONS = {
    "names": ({"target_modules": ["q_proj"]}, {"0.q", "1.q"}),
    "a pattern": ({"target_modules": r".*\.1\.self_attn\.[qv]_proj"}, {"1.q", "1.v"}),
    "a pattern of a part": ({"target_modules": "self_attn"}, set()),
    "every linear layer": ({"target_modules": "all-linear"}, {"0.q", "0.v", "1.q", "1.v"}),
    "excluded": ({"exclude_modules": ["v_proj"]}, {"0.q", "1.q"}),
    "excluded by a pattern": ({"exclude_modules": r"model\.layers\.0\..*"}, {"1.q", "1.v"}),
    "a layer": ({"layers_to_transform": 1}, {"1.q", "1.v"}),
    "layers": ({"layers_to_transform": [0]}, {"0.q", "0.v"}),
    "layers of a pattern": ({"layers_to_transform": [0], "layers_pattern": "layers"}, {"0.q", "0.v"}),
    "layers of another pattern": ({"layers_to_transform": [0], "layers_pattern": "h"}, set()),
}
"""Fields of an adapter's configuration, and the layers that it leaves of four, as in PEFT 0.21.2 (`make parity`)."""

OUTSIDE = (
    {
        f"{family}, {what}, {'tied' if tied else 'untied'}": (family, {"tie_word_embeddings": tied}, None, fields)
        for family in ("llama", "gemma3_text", "phi")
        for tied in (False, True)
        for what, fields in {
            "read-out": {"target_modules": ["q_proj", "lm_head"]},
            "embedding": {"target_modules": ["q_proj", "embed_tokens"]},
            "both": {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
            "whole read-out": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
            "whole embedding": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
        }.items()
        if family != "phi" or what == "read-out"
    }
    | {
        f"{family}, classes": (family, {}, "classes", {"target_modules": [query], "task_type": "SEQ_CLS"})
        for family, query in {
            "llama": "q_proj",
            "gpt2": "c_attn",
            "bert": "query",
            "roberta": "query",
            "distilbert": "q_lin",
            "albert": "query",
            "modernbert": "Wqkv",
        }.items()
    }
    | {
        "gpt_neox, read-out": ("gpt_neox", {}, None, {"target_modules": ["query_key_value", "lm_head"]}),
        "gpt_neox, whole read-out": (
            *("gpt_neox", {}, None),
            {"target_modules": ["query_key_value"], "modules_to_save": ["lm_head"]},
        ),
        "vit, classes": ("vit", {}, "classes", {"target_modules": ["q_proj"], "modules_to_save": ["classifier"]}),
    }
)
"""Adapters outside of the layers: family, fields of its configuration, head, and fields of PEFT's configuration."""
