"""Claim: splitting the score of a head of SmolLM2's layer 17 at 128 tokens costs at most 15 × its forward pass.

Run `make install && python -m benchmarks.score`.

The forward pass gives all logits.  Everything is compiled before, and measured in turn in the same run.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import duat_jax as duat
from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields
from experiments.texts import manual

RESULTS = Path("benchmarks/results/score.json")
TOKENS, LAYER, HEAD, REPEATS = 128, 17, 4, 9


def main() -> None:
    """Run the measurements, print them, and store the result."""
    model = duat.load(smollm2.path())
    tokenizer = model.tokenizer
    ids = jnp.array(tokenizer.encode(manual()[0]).ids[:TOKENS])
    forward = jax.jit(lambda model, ids: model(ids))
    programs: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(model, ids),
        "one score": lambda: duat.explain_attention(model, ids, layer=LAYER, head=HEAD, key=4).value,
        "difference of two": lambda: (
            duat.explain_attention(model, ids, layer=LAYER, head=HEAD, key=4, contrast=2).value
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for repeat in track(range(REPEATS + 1)):
        for name, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program())
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    result: dict[str, Any] = {"environment": environment(), "tokens": TOKENS, "layer": LAYER}
    for name, values in seconds.items():
        low, middle, high = np.percentile(np.array(values) / np.array(seconds["forward"]), [25, 50, 75])
        result[name] = {"median_s": np.median(values), "ratio": middle, "quartiles_of_ratio": [low, high]}
        print(f"{name:18} {np.median(values) * 1e3:8.1f} ms  × {middle:5.1f}  [{low:.1f}, {high:.1f}]")
    RESULTS.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: what was kept.
    """
    return {name: f"{results[name]['ratio']:.0f}" for name in ("one score", "difference of two")}


if __name__ == "__main__":
    main()
