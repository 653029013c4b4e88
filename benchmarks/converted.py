"""Claim: a forward pass by a checkpoint's own PyTorch code takes as long as a family's; loading takes seconds more.

Run `.venv-reference/bin/python -m benchmarks.converted`, which needs PyTorch.

Random checkpoints of two shapes, in float32: loading by transformers, by its code in JAX (with the comparison on a
sample) and by the family; a forward pass of 128 tokens, both compiled and run by turns in one process, with the time
of compiling apart. Memory is the largest that a process of its own takes while it loads a larger shape, without what
the imports take.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "converted.json"
TOKENS, REPEATS, LOADS = 128, 30, 5
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 512, "n_layer": 12, "n_head": 8, "vocab_size": 16_000, "n_positions": 512},
    "llama": {
        "hidden_size": 512,
        "intermediate_size": 1_408,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 16_000,
        "tie_word_embeddings": False,
    },
}
LARGE = SHAPES["llama"] | {"hidden_size": 1_024, "intermediate_size": 2_816, "num_hidden_layers": 24}
"""A shape of 0.3 billion weights."""
MEMORY = """
import re, sys
import torch, torchax, transformers, jax, duat_jax

def most():  # since this process began: `ru_maxrss` begins at that of the process that started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

duat_jax.load, duat_jax.from_hugging_face
jax.numpy.ones(3).block_until_ready()
before = most()
{load}
print(most() - before)
"""
LOAD = {
    "transformers": "model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])",
    "its code in JAX": "model = duat_jax.from_hugging_face(transformers.AutoModelForCausalLM, sys.argv[1])",
    "the family": "model = duat_jax.load(sys.argv[1])",
}


def save(model_type: str, sizes: dict[str, Any], folder: str) -> int:
    """Save a random checkpoint, and return how many bytes its weights take.

    Args:
        model_type: a family.
        sizes: fields of its configuration.
        folder: where to.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    settings = transformers.AutoConfig.for_model(model_type, **sizes)
    module = transformers.AutoModelForCausalLM.from_config(settings)
    module.save_pretrained(folder)
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def seconds(run: Callable[[], Any]) -> float:
    """Return how long a call takes.

    Args:
        run: the call.
    """
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def summary(values: list[float]) -> dict[str, Any]:
    """Return a median and quartiles.

    Args:
        values: the measurements.
    """
    return {"median_s": float(np.median(values)), "quartiles_s": np.percentile(values, [25, 75]).tolist()}


def measured(model_type: str) -> dict[str, Any]:
    """Return the times of one shape.

    Args:
        model_type: a name in `SHAPES`.
    """
    import jax
    import jax.numpy as jnp
    import transformers

    import duat_jax as duat

    with tempfile.TemporaryDirectory() as folder:
        weights = save(model_type, SHAPES[model_type], folder)
        ways = {
            "transformers": lambda: transformers.AutoModelForCausalLM.from_pretrained(folder),
            "its code in JAX": lambda: duat.from_hugging_face(transformers.AutoModelForCausalLM, folder),
            "the family": lambda: duat.load(folder),
        }
        loading: dict[str, list[float]] = {name: [] for name in ways}
        for repeat in range(LOADS + 1):
            for name, load in ways.items():
                taken = seconds(load)
                loading[name] += [taken] if repeat else []
        models = {name: ways[name]() for name in ("its code in JAX", "the family")}
    ids = jnp.asarray(np.random.default_rng(0).integers(3, 16_000, TOKENS))
    forward = jax.jit(lambda model, ids: model(ids))
    compiling = {
        name: seconds(lambda model=model: forward.lower(model, ids).compile()) for name, model in models.items()
    }
    running: dict[str, list[float]] = {name: [] for name in models}
    for repeat in range(REPEATS + 2):
        for name, model in models.items():
            taken = seconds(lambda model=model: forward(model, ids).block_until_ready())
            running[name] += [taken] if repeat > 1 else []
    return {
        "weights_bytes": weights,
        "loading": {name: summary(values) for name, values in loading.items()},
        "compiling_s": compiling,
        "forward": {name: summary(values) for name, values in running.items()},
    }


def memory() -> dict[str, float]:
    """Return the largest memory while the large shape is loaded, in multiples of its weights."""
    with tempfile.TemporaryDirectory() as folder:
        weights = save("llama", LARGE, folder)
        taken = {}
        for name, load in LOAD.items():
            code = MEMORY.format(load=load)
            printed = subprocess.run([sys.executable, "-c", code, folder], check=True, stdout=subprocess.PIPE).stdout
            taken[name] = int(printed.split()[-1]) * 1_024 / weights
    return {"weights_bytes": weights, **taken}


def fields(results: dict[str, Any]) -> dict[str, str]:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    from experiments.markdown import table

    def shown(summary: dict[str, Any], digits: int) -> str:
        low, high = summary["quartiles_s"]
        return f"{summary['median_s']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}] s"

    rows = [
        (
            f"`{model_type}`, {result['weights_bytes'] / 4e6:.0f} million weights, {name}",
            shown(result["loading"][name], 2),
            f"{result['compiling_s'][name]:.1f} s" if name in result["compiling_s"] else "",
            shown(result["forward"][name], 3) if name in result["forward"] else "",
        )
        for model_type in SHAPES
        for result in (results[model_type],)
        for name in LOAD
    ]
    memory = results["memory of weights"]
    return {
        "table": "\n".join(table(["", "loading", "compiling", f"forward pass of {TOKENS} tokens"], rows)),
        "forward": " and ".join(
            f"{forward['its code in JAX']['median_s'] / forward['the family']['median_s']:.2f}"
            for forward in (results[model_type]["forward"] for model_type in SHAPES)
        ),
        "large": f"{memory['weights_bytes'] / 4e9:.1f}",
        **{f"memory {name}": f"{memory[name]:.1f}" for name in LOAD},
    }


def main() -> None:
    """Measure, print and keep."""
    from experiments.environment import environment

    results: dict[str, Any] = {"environment": environment(), "memory of weights": memory()}
    results |= {model_type: measured(model_type) for model_type in SHAPES}
    print(json.dumps(results, indent=1))
    RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
