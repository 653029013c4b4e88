"""Claim: on an accelerator too, a table takes at most 1.6 × the forward pass, and a secant 1.6 × the gradient.

Run `make accelerators`: eight minutes on whatever device JAX finds. What wouldn't fit into them is left out, and said.

Random weights in the shapes of SmolLM2-135M and of Llama 3.2 1B, in float32 and in bfloat16, texts of 128 to 4,096
tokens; one logit at the last position. Forward pass, table, gradient and secant, to a text with another token, are
compiled and measured in turn in the same run; `explain` and `contrast` are the questions as a user asks them, after the
first one. Memory is what the table's program needs at once.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from benchmarks.mesh import ONE_BILLION
from benchmarks.secant import gradient
from benchmarks.secant import with_neurons as secant
from benchmarks.table import forward, measure
from benchmarks.table import with_neurons as table
from experiments.environment import environment
from experiments.markdown import Fields
from experiments.markdown import table as rows_of

RESULTS = Path(__file__).parent / "results" / "on_this_device.json"
SECONDS, REPEATS = 480.0, 7

SMALL = dataclasses.replace(
    ONE_BILLION,
    blocks=(dataclasses.replace(ONE_BILLION.blocks[0], features=576, heads=9, key_value_heads=3, neurons=1536),) * 30,
    vocab=49152,
    head=dataclasses.replace(ONE_BILLION.head, outputs=49152),
)
SHAPES = {"135 million": SMALL, "1 billion": ONE_BILLION}
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
TOKENS = (128, 512, 2048, 4096)
PROGRAMS: dict[str, Callable[..., Any]] = {"forward": forward, "gradient": gradient, "secant": secant, "table": table}


def model_of(shape: str, dtype: str) -> duat.models.Transformer:
    """Return a random model.

    Args:
        shape: one of `SHAPES`.
        dtype: of its weights.
    """
    model = duat.models.Transformer(SHAPES[shape], rngs=nnx.Rngs(0))
    return jax.tree.map(lambda leaf: leaf.astype(DTYPES[dtype]), model)


def asked(question: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Return the seconds of a question that was asked before, with quartiles.

    Args:
        question: asks.
        repeats: how often.
    """
    question()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        question()
        seconds.append(time.perf_counter() - began)
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return {"median_s": middle, "quartiles_s": [low, high]}


def case(shape: str, dtype: str, tokens: int, repeats: int) -> dict[str, Any]:
    """Measure the programs and the questions of one model and one text.

    Args:
        shape: one of `SHAPES`.
        dtype: of the weights.
        tokens: of the text.
        repeats: how often each runs.
    """
    model, ids = model_of(shape, dtype), np.arange(tokens)
    measured = measure(model, tokens, repeats, PROGRAMS)
    other = ids + 1000 * (ids == tokens // 2)
    questions = {"explain": lambda: duat.explain(model, ids), "contrast": lambda: duat.contrast(model, ids, other)}
    return measured | {name: asked(question, repeats) for name, question in questions.items()}


def fields(results: dict[str, Any]) -> Fields:
    """Return the table of the documentation page.

    Args:
        results: the kept results, by device.
    """
    rows = []
    for device, found in results.items():
        for name, each in found["cases"].items():
            times = {program: each[program]["median_s"] for program in (*PROGRAMS, "explain", "contrast")}
            rows.append(
                [
                    *(device, name, f"{times['forward'] * 1e3:.3g} ms", f"{times['table'] / times['forward']:.2f} ×"),
                    f"{times['secant'] / times['gradient']:.2f} ×",
                    *(f"{times[question] / times['forward']:.1f} ×" for question in ("explain", "contrast")),
                    f"{each['table']['peak_mb'] / 1e3:.1f} GB",
                ]
            )
    head = ("device", "model", "forward pass", "table", "secant, of the gradient", "`explain`", "`contrast`", "memory")
    return {"table": "\n".join(["", *rows_of(head, rows), ""])}


def main() -> None:
    """Measure what fits into the time, print it, and keep it under the device's name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"environment": environment(), "repeats": REPEATS, "cases": {}, "left_out": {}}
    began, longest = time.monotonic(), 0.0
    for tokens in TOKENS:
        for shape in SHAPES:
            for dtype in DTYPES:
                name, started = f"{shape}, {dtype}, {tokens:,} tokens", time.monotonic()
                if started - began + 1.5 * longest > arguments.seconds:
                    found["left_out"][name] = "time"
                    print(f"{name}: left out, there was no time for it")
                    continue
                try:
                    found["cases"][name] = each = case(shape, dtype, tokens, REPEATS)
                except jax.errors.JaxRuntimeError as error:  # there is no memory for it
                    found["left_out"][name] = str(error).splitlines()[0][:200]
                    print(f"{name}: left out, {found['left_out'][name]}")
                    continue
                longest = max(longest, time.monotonic() - started)
                said = (
                    f"{program} {each[program]['median_s'] * 1e3:.1f} ms"
                    for program in (*PROGRAMS, "explain", "contrast")
                )
                print(f"{name}: {', '.join(said)}", flush=True)
                jax.clear_caches()
    kept = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    device = found["environment"]["processor"] if jax.default_backend() == "cpu" else found["environment"]["device"]
    arguments.json.write_text(json.dumps(kept | {device: found}, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
