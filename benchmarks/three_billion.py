"""Claim: a model of three billion parameters in bfloat16 is explained in 12 GB, or the question is refused before.

Run `python -m benchmarks.three_billion` (needs 8 GB of disk, and 12 GB of memory that are free).

Checkpoints of Llama 3.2-3B's shape with random weights in bfloat16, of few layers and of all.  A process loads one, and
asks one question, as if the machine had no more than a limit.  By default the compiler for CPUs makes all copies of
weights in float32 first; `ORDER` is the other order.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path(__file__).parent / "results" / "three_billion.json"
LAYERS, FEW, TOKENS = 28, 4, 16
ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128_256,
    "tie_word_embeddings": True,
}
DRAWN = 2**24
"""The number of weights that are drawn; the others repeat them from another place on."""
QUESTIONS = {
    "explain": "duat.explain(model, ids, 7)",
    "contrast": "duat.contrast(model, ids, ids[::-1], 7)",
}

PROGRAM = """
import json, os, resource, sys, time
import jax
import duat_jax as duat
from duat_jax import memory


def held():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


memory.free_memory = lambda: float(sys.argv[4]) - held()
began = time.process_time()
model = jax.block_until_ready(duat.load(sys.argv[1], dtype="bfloat16"))
loaded, ids = time.process_time(), list(range(100, 100 + int(sys.argv[3])))
try:
    found = eval(sys.argv[2]).completeness.as_dict()
except duat.NotEnoughMemory as error:
    found = {"refused": str(error)}
asked = time.process_time()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"load_s": loaded - began, "question_s": asked - loaded, "peak": peak, **found}))
"""


def generate(directory: Path, layers: int = LAYERS) -> None:
    """Write the checkpoint, a file for every layer.

    Args:
        directory: an empty directory.
        layers: their number.
    """
    (directory / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}), encoding="utf-8")
    features, neurons, narrow = 3072, 8192, 1024
    layer = {
        "self_attn.q_proj": (features, features),
        "self_attn.o_proj": (features, features),
        **{f"self_attn.{name}_proj": (narrow, features) for name in "kv"},
        **{f"mlp.{name}_proj": (neurons, features) for name in ("gate", "up")},
        "mlp.down_proj": (features, neurons),
        "input_layernorm": (features,),
        "post_attention_layernorm": (features,),
    }
    outside = {"model.embed_tokens": (128_256, features), "model.norm": (features,)}
    drawn = (0.02 * np.random.default_rng(0).standard_normal(DRAWN, np.float32)).astype(ml_dtypes.bfloat16)
    file_of: dict[str, str] = {}
    for i, part in enumerate(
        [outside, *({f"model.layers.{k}.{name}": of for name, of in layer.items()} for k in range(layers))]
    ):
        tensors = {}
        for number, (name, shape) in enumerate(part.items()):
            weights = np.resize(np.roll(drawn, 9973 * (100 * i + number)), math.prod(shape)).reshape(shape)
            tensors[f"{name}.weight"] = weights if len(shape) > 1 else np.ones_like(weights)
        save_file(tensors, directory / f"model-{i}.safetensors")
        file_of |= dict.fromkeys(tensors, f"model-{i}.safetensors")
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_of}), encoding="utf-8")


def measured(directory: Path, question: str, limit: float, flags: str = "") -> dict[str, Any]:
    """Return time, memory and verdict of a process that loads and asks, or why it refused.

    Args:
        directory: the checkpoint's.
        question: one of `QUESTIONS`.
        limit: the bytes of memory that it may hold.
        flags: the compiler's.
    """
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(directory), QUESTIONS[question], str(TOKENS)]
    environment = os.environ | {"XLA_FLAGS": flags}
    printed = subprocess.run([*command, str(limit)], check=True, stdout=subprocess.PIPE, env=environment).stdout
    return json.loads(printed)


CASES = (
    (FEW, "explain", ""),
    (FEW, "explain", ORDER),
    (FEW, "contrast", ""),
    (FEW, "contrast", ORDER),
    (LAYERS, "explain", ""),
    (LAYERS, "explain", ORDER),
    (LAYERS, "contrast", ORDER),
)
"""Layers, question and the compiler's flags."""


def fields(results: dict[str, Any]) -> Fields:
    """Return the field of the documentation page.

    Args:
        results: the kept results.
    """
    rows = []
    for layers, question, flags in CASES:
        found = results[f"{layers} layers, {question}, {flags}"]
        order = "each copy where it is used" if flags else "all copies first"
        needed = re.search(r"[\d.]+ GB", found.get("refused", ""))
        verdict = f"refused: {needed[0]} beside the weights" if needed else found["verdict"]
        rows.append([str(layers), question, order, f"{found['peak'] / 1e9:.1f}", verdict])
    return {"table": "\n".join(table(["layers", "question", "the compiler's order", "peak, GB", "verdict"], rows))}


def main() -> None:
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=12e9, help="bytes of memory that a question may hold")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"environment": environment(), "tokens": TOKENS}
    with tempfile.TemporaryDirectory() as folder:
        for layers in (FEW, LAYERS):
            directory = Path(folder) / str(layers)
            directory.mkdir()
            generate(directory, layers)
            for _, question, flags in [case for case in CASES if case[0] == layers]:
                name = f"{layers} layers, {question}, {flags}"
                results[name] = measured(directory, question, arguments.limit, flags)
                print(name, results[name], flush=True)
    RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
