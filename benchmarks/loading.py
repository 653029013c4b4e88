"""Claim: loading takes at most 1.15 × the memory of the weights in the target dtype, and SmolLM2-135M at most 5 s.

The memory is that of a generated checkpoint of 1.1 billion parameters in the shape of a Llama, stored as bfloat16 in
several files with an index: the most that the process ever held less what it held when everything was imported.

Run `python -m benchmarks.loading [SmolLM2-135M-Instruct.Q4_1.gguf]`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from experiments.environment import environment

FEATURES, NEURONS, LAYERS, VOCAB, HEADS, KEY_VALUE_HEADS = 2048, 5632, 22, 32_000, 32, 4
DTYPES = ("bfloat16", "float32")
REPEATS = 3
TO_REACH = {"memory": 1.15, "seconds": 5.0}

PROGRAM = """
import json, os, resource, sys, time
import jax
import duat_jax as duat
duat.load()
before = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
began = time.perf_counter()
model = jax.block_until_ready(duat.load(sys.argv[1], dtype=sys.argv[2]))
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model))
print(json.dumps({"seconds": seconds, "weights_bytes": weights, "peak_over_weights": (peak - before) / weights}))
"""


def generate(directory: Path) -> None:
    """Write a checkpoint of 1.1 billion parameters, a file for every layer.

    Args:
        directory: an empty directory.
    """
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": FEATURES,
        "intermediate_size": NEURONS,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
    }
    (directory / "config.json").write_text(json.dumps(config))
    narrow = FEATURES * KEY_VALUE_HEADS // HEADS
    layer = {
        "self_attn.q_proj": (FEATURES, FEATURES),
        "self_attn.k_proj": (narrow, FEATURES),
        "self_attn.v_proj": (narrow, FEATURES),
        "self_attn.o_proj": (FEATURES, FEATURES),
        "mlp.gate_proj": (NEURONS, FEATURES),
        "mlp.up_proj": (NEURONS, FEATURES),
        "mlp.down_proj": (FEATURES, NEURONS),
        "input_layernorm": (FEATURES,),
        "post_attention_layernorm": (FEATURES,),
    }
    outside = {"model.embed_tokens": (VOCAB, FEATURES), "lm_head": (VOCAB, FEATURES), "model.norm": (FEATURES,)}
    parts = [{f"model.layers.{i}.{name}": shape for name, shape in layer.items()} for i in range(LAYERS)]
    random, file_of = np.random.default_rng(0), {}
    for i, part in enumerate([outside, *parts]):
        tensors = {
            f"{name}.weight": (0.02 * random.standard_normal(shape, np.float32)).astype(ml_dtypes.bfloat16)
            for name, shape in part.items()
        }
        save_file(tensors, directory / f"model-{i}.safetensors")
        file_of |= dict.fromkeys(tensors, f"model-{i}.safetensors")
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_of}))


def measured(path: Path | str, dtype: str) -> dict[str, float]:
    """Return the medians of time and memory of loading, each in a process of its own.

    Args:
        path: the checkpoint.
        dtype: the target dtype.
    """
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", PROGRAM, path, dtype], check=True, stdout=-1).stdout)
        for _ in range(REPEATS)
    ]
    result = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    print(f"{Path(path).name:32s} {dtype:8s} {result['seconds']:5.1f} s  × {result['peak_over_weights']:.3f} memory")
    return result | {"seconds_of_each": [run["seconds"] for run in runs]}


def main() -> None:
    """Run the measurements, print them, and store the result."""
    result = {"environment": environment(), "repeats": REPEATS, "to_reach": TO_REACH}
    with tempfile.TemporaryDirectory() as parent:
        generate(Path(parent))
        result |= {f"llama_1.1b_to_{dtype}": measured(parent, dtype) for dtype in DTYPES}
    for path in sys.argv[1:]:
        result[Path(path).name] = measured(path, "float32")
    Path("benchmarks/results/loading.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
