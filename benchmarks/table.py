"""Claim: the complete table of one logit costs at most 1.6 × the plain forward pass, the one without neurons 1.4 ×.

Run `make install && python -m benchmarks.table`.

GPT-2-small's shape with random weights; one text, everything jitted, the three programs measured in turn in the same
run.  By counting products the floors are 1.5 and 1.2.  Memory is what the
compiled program needs at once: arguments (the weights), temporaries and results; the table itself is among the results.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from rich.progress import track

import duat_jax as duat
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from experiments import smollm2 as smollm2_file
from experiments.environment import environment

CONFIG = duat.models.Config(
    family="gpt2",
    blocks=(BlockConfig(arrangement="pre-norm", features=768, heads=12, neurons=3072, activation="gelu_tanh"),) * 12,
    vocab=50257,
    positions=1024,
    head=Head(kind="next token", outputs=50257, tied=True),
)
TARGET = 11


def gpt2_small() -> duat.models.Transformer:
    """Return a random model of GPT-2-small's shape."""
    return duat.models.Transformer(CONFIG, rngs=nnx.Rngs(0))


def smollm2() -> duat.models.Transformer:
    """Return SmolLM2-135M-Instruct."""
    return duat.load(smollm2_file.path())


CASES = (("GPT-2-small's shape", gpt2_small, (128, 512)),)
"""Of every model, the lengths of text."""


def logit(model: duat.models.Transformer, x: jax.Array) -> jax.Array:
    """Return one logit at the last position from the embeddings."""
    return jnp.dot(model.hidden(x)[-1], model.unembedding[TARGET], precision=jax.lax.Precision.HIGHEST)


def forward(model: duat.models.Transformer, ids: jax.Array) -> jax.Array:
    """Return one logit, from the plain forward pass."""
    return logit(model, model.embed(ids))


def with_neurons(model: duat.models.Transformer, ids: jax.Array) -> duat.results.Decomposition:
    """Return the complete table: embedding × token, layer × token × neuron, every bias."""
    return duat.decompose(lambda x: logit(model, x), model.embed(ids))


def without_neurons(model: duat.models.Transformer, ids: jax.Array) -> duat.results.Decomposition:
    """Return the table of layer × token."""
    return duat.decompose(lambda x: logit(model, x), model.embed(ids), by_neuron=False)


PROGRAMS = {"forward": forward, "with_neurons": with_neurons, "without_neurons": without_neurons}


def measure(
    model: Any,
    tokens: int,
    repeats: int,
    programs: dict[str, Callable[[Any, jax.Array], Any]] = PROGRAMS,
) -> dict[str, Any]:
    """Measure the times of programs in turn.

    Args:
        model: the model, or whatever else the programs take.
        tokens: length of the text.
        repeats: how often each program runs.
        programs: by name; `"forward"` is what they are compared with, the last one has a completeness.
    """
    ids = jnp.arange(tokens)
    compiled, result = {}, {}
    for name, program in programs.items():
        began = time.perf_counter()
        compiled[name] = jax.jit(program).lower(model, ids).compile()
        memory = compiled[name].memory_analysis()
        peak = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
        result[name] = {
            "compile_s": time.perf_counter() - began,
            "peak_mb": peak / 1e6,
            "temporary_mb": memory.temp_size_in_bytes / 1e6,
            "result_mb": memory.output_size_in_bytes / 1e6,
            "operations": compiled[name].cost_analysis()["flops"],
        }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for repeat in track(range(repeats + 2), f"{tokens} tokens"):
        for name, program in compiled.items():
            began = time.perf_counter()
            jax.block_until_ready(program(model, ids))
            if repeat >= 2:
                seconds[name].append(time.perf_counter() - began)
    for name, values in seconds.items():
        low, middle, high = np.percentile(values, [25, 50, 75])
        result[name] |= {"median_s": middle, "quartiles_s": [low, high]}
    for name in programs:
        ratios = np.array(seconds[name]) / np.array(seconds["forward"])
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        result[name] |= {
            "median_of_ratio": middle,
            "quartiles_of_ratio": [low, high],
            "memory_ratio_without_table": (result[name]["peak_mb"] - result[name]["result_mb"])
            / (result["forward"]["peak_mb"] - result["forward"]["result_mb"]),
        }
    completeness = compiled[list(programs)[-1]](model, ids).completeness
    result["completeness"] = completeness.as_dict() | {"value": float(completeness.value)}
    return result


def run(
    description: str | None,
    results: Path,
    cases: Iterable[tuple[str, Callable[[], Any], tuple[int, ...]]],
    programs: dict[str, Callable],
    extra: Callable[[dict[str, Any], str], str],
) -> None:
    """Measure every program on every text, print a line for each, and store the result.

    Args:
        description: what `--help` says.
        results: where the result is kept, if nothing else is asked for.
        cases: of every model its name, what makes it, and the lengths of text.
        programs: what is measured, by name.
        extra: returns further text for a program's line, from all measurements and the program's name.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, default=results)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "repeats": arguments.repeats}
    for called, make, tokens in ((called, make, n) for called, make, lengths in cases for n in lengths):
        result[f"{called}, {tokens} tokens"] = measured = measure(make(), tokens, arguments.repeats, programs)
        for name in programs:
            times = measured[name]
            print(
                f"{called}, {tokens:4d} tokens  {name:16s}"
                f" {times['median_s'] * 1e3:7.1f} ms  × {times['median_of_ratio']:.2f}"
                f"  [{times['quartiles_of_ratio'][0]:.2f}, {times['quartiles_of_ratio'][1]:.2f}]"
                f"  {extra(measured, name)}  compile {times['compile_s']:.1f} s"
            )
        error, value = (abs(measured["completeness"][name]) for name in ("error", "value"))
        print(f"{called}, {tokens:4d} tokens  completeness: {error / value:.1e} of the number")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    run(
        __doc__,
        Path("benchmarks/results/table.json"),
        CASES,
        PROGRAMS,
        lambda measured, name: f"memory × {measured[name]['memory_ratio_without_table']:.2f}",
    )
