"""A small random model of every model type of the installed transformers: is it converted, exact, and certified?

`python -m tests.parity.model_types --to results.json` tries all of them, `--part 3/40` one of forty parts, and
`--types llama bart` some; other results in the file are kept.
"""

import argparse
import inspect
import json
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

import duat_jax as duat

TOKENS, SECONDS = 6, 120
"""The length of a text, and the most that a model may take."""
READS_TEXTS = ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")
OTHERS = ("CTC", "SPEECH_SEQ_2_SEQ", "IMAGE_CLASSIFICATION")
CLASSES = {
    model_type: name
    for kind in ("", *(f"FOR_{kind}_" for kind in (*OTHERS, *reversed(READS_TEXTS))))
    for model_type, name in getattr(modeling_auto, f"MODEL_{kind}MAPPING_NAMES").items()
}
"""The class that is tried of each model type: one with logits of tokens where there is one."""
SIZES = {
    32: "hidden_size d_model n_embd dim embed_dim word_embed_proj_dim embedding_size hidden_dim d_embed q_lora_rank",
    64: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size dim_ff vocab_size"
    " shared_expert_intermediate_size moe_shared_expert_intermediate_size max_position_embeddings n_positions"
    " max_source_positions max_target_positions",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers depth"
    " num_decoder_layers num_key_value_heads num_experts_per_tok num_experts_per_token moe_topk top_k_experts moe_k"
    " num_nextn_predict_layers",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts"
    " n_routed_experts num_local_experts moe_num_experts",
    8: "head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim patch_size d_kv kv_lora_rank state_size mamba_d_state"
    " ssm_state_size",
    16: "moe_intermediate_size expert_ffn_hidden_size moe_ffn_hidden_size",
    48: "image_size",
    1: "n_group topk_group n_shared_experts first_k_dense_replace moe_layer_start_index",
    0: "pad_token_id bos_token_id eos_token_id decoder_start_token_id",
}
SIZE_OF = {name: size for size, names in SIZES.items() for name in names.split()}


def small(settings: type) -> dict[str, Any]:
    """Return arguments of a configuration that make its model small."""
    defaults, arguments = settings().to_dict(), {}
    for name, value in defaults.items():
        inner = getattr(settings, "sub_configs", {}).get(name)
        if inner is not None and hasattr(inner, "to_dict") and inner is not transformers.AutoConfig:
            arguments[name] = small(inner)
        elif isinstance(value, dict) and "model_type" in value:
            arguments[name] = small(configuration_auto.CONFIG_MAPPING[value["model_type"]])
        elif name in SIZE_OF and (isinstance(value, int) or (value is None and name != "head_dim")):
            arguments[name] = SIZE_OF[name]
        elif name == "layer_types" and value:
            arguments[name] = list(dict.fromkeys(value))[:2] * (3 - min(2, len(set(value))))
    return arguments


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise where a block takes longer."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def example_of(module: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of the floating-point input of a model, and all its inputs."""
    takes = inspect.signature(module.forward).parameters
    settings = module.config
    vision = getattr(settings, "vision_config", settings)
    ids = torch.arange(TOKENS)[None] + 20
    given: dict[str, Any] = {}
    if "inputs_embeds" in takes and module.get_input_embeddings() is not None:
        name = "inputs_embeds"
        given[name] = module.get_input_embeddings()(ids).detach()
        given |= {"attention_mask": torch.ones_like(ids)} if "attention_mask" in takes else {}
    elif "pixel_values" in takes:
        size = getattr(vision, "image_size", 48)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        name, given["pixel_values"] = "pixel_values", torch.randn(1, getattr(vision, "num_channels", 3), height, width)
        given |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)} if "input_ids" in takes else {}
    elif "input_values" in takes:
        name, given["input_values"] = "input_values", torch.randn(1, 4000)
    elif "input_features" in takes:
        bins = getattr(settings, "num_mel_bins", getattr(settings, "feature_size", 80))
        name = "input_features"
        places = getattr(settings, "max_source_positions", None)
        given[name] = torch.randn(1, bins, 2 * places) if places else torch.randn(1, 64, bins)
    else:
        raise TypeError(f"its inputs are {', '.join(takes)}")
    if "decoder_input_ids" in takes:
        given["decoder_input_ids"] = ids[:, :3]
    if hasattr(settings.get_text_config(), "use_cache") and "use_cache" in takes:
        given["use_cache"] = False
    return name, given


def logits(output: Any) -> Any:
    """Return the logits of a model's output, or its first floating-point array."""
    if isinstance(output, dict) and "logits" in output:
        return output["logits"]
    return next(leaf for leaf in jax.tree.leaves(output) if jnp.issubdtype(leaf.dtype, jnp.floating))


def tried(model_type: str) -> dict[str, Any]:
    """Return what was found of a model type."""
    name = CLASSES[model_type]
    row: dict[str, Any] = {"class": name if isinstance(name, str) else name[0]}
    began = time.monotonic()
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            row["step"] = "built"
            settings = configuration_auto.CONFIG_MAPPING[model_type]
            config = settings(**small(settings))
            module = getattr(transformers, row["class"])._from_config(config, attn_implementation="eager").eval()
            for part in (module.config, module.config.get_text_config()):
                part._experts_implementation = "batched_mm"
            name, given = example_of(module)
            row["step"] = "converted"
            function = duat.from_torch(module, given)
            arrays = {key: jnp.asarray(each.numpy()) if hasattr(each, "numpy") else each for key, each in given.items()}
            x = arrays.pop(name)
            weights: list[Any] = []

            def number(x: Any) -> Any:
                vector = logits(function(**{name: x}, **arrays)).reshape(-1)
                weights[:] = weights or [np.random.default_rng(0).normal(size=vector.shape)]
                return vector @ jnp.asarray(weights[0], vector.dtype)

            y = x[:, ::-1] if x.ndim == 3 else x[..., ::-1]
            row["step"] = "secant"
            row["secant"] = duat.secant(number)(x, y).completeness.verdict
            row["step"] = "marked"
            parts = duat.decompose(duat.auto(number), x)
            row["marked"] = parts.completeness.verdict
            row["terms"] = len(parts.terms)
            whole = sum(float(jnp.sum(part)) for key, part in parts.offsets.items() if key.name == "not_attributed")
            row["not attributed"] = abs(whole) / max(abs(float(parts.completeness.value)), 1e-9)
            row["step"] = "done"
    except Exception as error:
        row["reason"] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    row["seconds"] = round(time.monotonic() - began, 1)
    jax.clear_caches()
    return row


def main() -> None:
    """Try every model type of a part, and write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--types", nargs="*")
    parser.add_argument("--to", type=Path, required=True)
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    jax.config.update("jax_disable_most_optimizations", True)
    part, parts = map(int, asked.part.split("/"))
    for model_type in asked.types or sorted(CLASSES)[part - 1 :: parts]:
        row = tried(model_type)
        found = json.loads(asked.to.read_text()) if asked.to.is_file() else {}
        asked.to.write_text(json.dumps({**found, model_type: row}, indent=1))
        print(model_type, row, flush=True)


if __name__ == "__main__":
    main()
