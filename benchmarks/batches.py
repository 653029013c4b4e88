"""Claim: of 16 texts of 64 tokens, explained together, each takes at most 0.8 × the time of one text alone.

Run `python -m benchmarks.batches` on two quiet cores.

`explain` from token ids to numbers on the host, for the embedded model and for GPT-2-small's shape with random weights;
one text and all of them in turn in the same run.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from flax import nnx
from rich.progress import track

import duat_jax as duat
from benchmarks.table import CONFIG
from experiments.environment import environment

TEXTS, TOKENS, TARGET = 16, 64, 11


def measure(model: duat.models.Transformer, repeats: int) -> dict[str, Any]:
    """Measure one text and all of them in turn.

    Args:
        model: the model.
        repeats: how often each is explained.
    """
    texts = np.random.default_rng(0).integers(0, model.config.vocab, (TEXTS, TOKENS))
    seconds: dict[str, list[float]] = {"alone": [], "together": []}
    for repeat in track(range(repeats + 1), model.config.family):
        for name, batch in (("alone", texts[:1]), ("together", texts)):
            began = time.perf_counter()
            duat.explain(model, batch, TARGET)
            if repeat:
                seconds[name].append((time.perf_counter() - began) / len(batch))
    result: dict[str, Any] = {}
    for name, values in seconds.items():
        low, middle, high = np.percentile(values, [25, 50, 75])
        result[name] = {"median_s": middle, "quartiles_s": [low, high]}
    low, middle, high = np.percentile(np.divide(seconds["together"], seconds["alone"]), [25, 50, 75])
    return result | {"ratio": middle, "quartiles_of_ratio": [low, high]}


def main() -> None:
    """Run the measurements, print them, and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/batches.json"))
    arguments = parser.parse_args()
    result = {"environment": environment(), "repeats": arguments.repeats, "load_average": os.getloadavg()}
    models = {"embedded": duat.load(), "gpt2_small_shape": duat.models.Transformer(CONFIG, rngs=nnx.Rngs(0))}
    for name, model in models.items():
        result[name] = measured = measure(model, arguments.repeats)
        print(
            f"{name:17s} alone {measured['alone']['median_s'] * 1e3:6.1f} ms  together"
            f" {measured['together']['median_s'] * 1e3:6.1f} ms a text  × {measured['ratio']:.2f}"
            f"  [{measured['quartiles_of_ratio'][0]:.2f}, {measured['quartiles_of_ratio'][1]:.2f}]"
        )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
