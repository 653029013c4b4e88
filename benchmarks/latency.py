"""Claim: `duat explain` takes at most 0.5 s from its second run on, 3 s by itself, under 6 s with an empty cache.

A next text in Python takes under 0.3 s. With SmolLM2-135M: 5 s to load it, 15 s for the first text, 1 s for the next
one.
Run `make install && python -m benchmarks.latency` on two quiet cores; `python -m benchmarks.latency resident` measures
only the process that stays.

Every command runs in a fresh process with a cache directory of its own, empty for the first run.  A next text is one
of another length in a bucket that is compiled.  Compilation by depth is that of `explain` with random weights of
the embedded model's width, in a fresh process without a cache.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.environment import environment

REPEATS = 7
TEXTS = ("def get(self, key, default=None): return self.data.get(key,", "for i in range(10", "import os\nimport sys\n")
FILE = Path("benchmarks/results/latency.json")
NOTEBOOK = """
import json, sys, time
import duat_jax as duat
model = duat.load()
duat.explain(model, list(range(5, 5 + 64)))
seconds = []
for length in range(33, 64, 3):
    began = time.perf_counter()
    duat.explain(model, list(range(5, 5 + length)))
    seconds.append(time.perf_counter() - began)
print(json.dumps(seconds))
"""
SMOLLM2 = """
import json, sys, time
import jax
import duat_jax as duat
from experiments.smollm2 import path
began = time.perf_counter()
model, tokenizer = duat.load(path()), duat.load_tokenizer(path())
jax.block_until_ready(jax.tree.leaves(model))
seconds = [time.perf_counter() - began]
for text in ("The capital of France is", "The capital of Italy is the city of"):
    began = time.perf_counter()
    duat.explain(model, tokenizer.encode(text).ids, tokenizer=tokenizer)
    seconds.append(time.perf_counter() - began)
print(json.dumps(seconds))
"""
DEPTH = """
import dataclasses, json, sys, time
from flax import nnx
import duat_jax as duat
config = duat.load_config()
config = dataclasses.replace(config, blocks=config.blocks[:1] * int(sys.argv[1]))
model = duat.models.Transformer(config, rngs=nnx.Rngs(0))
began = time.perf_counter()
duat.explain(model, list(range(32)))
print(json.dumps([time.perf_counter() - began]))
"""
DEPTHS = (6, 12, 24, 48)


def timed(text: str, cache: str, *, resident: bool = False) -> float:
    """Return the time of `duat explain`, in seconds.

    Args:
        text: what is explained.
        cache: the user's cache directory.
        resident: whether a process that stays runs the command, where there is one.
    """
    values = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    values |= {"XDG_CACHE_HOME": cache, "XDG_RUNTIME_DIR": cache, "DUAT_RESIDENT": ".1" if resident else "0"}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "duat_jax", "explain", text], check=True, stdout=subprocess.DEVNULL, env=values
    )
    return time.perf_counter() - began


def resident_seconds() -> dict[str, list[float]]:
    """Return the times of later commands after one with an empty cache, with the process that it leaves behind."""
    seconds: dict[str, list[float]] = {"resident_second": [], "resident_third": []}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as cache:
            timed(TEXTS[0], cache, resident=True)
            for name in seconds:
                seconds[name].append(timed(TEXTS[0], cache, resident=True))
    return seconds


def summary(name: str, values: list[float]) -> dict[str, Any]:
    """Print the median of measured times with its quartiles, and return them for the record."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    print(f"{name:24s} {middle:6.2f} s  [{low:.2f}, {high:.2f}]")
    return {"median_s": middle, "quartiles_s": [low, high], "largest_s": max(values)}


def printed(code: str, *arguments: str) -> list[Any]:
    """Return the seconds that a program in a fresh process prints.

    Args:
        code: the program.
        *arguments: its arguments.
    """
    result = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return json.loads(result.stdout)


def main() -> None:
    """Run the measurements, print them, and store the result."""
    if sys.argv[1:] == ["resident"]:
        result = json.loads(FILE.read_text())
        result |= {name: summary(name, values) for name, values in resident_seconds().items()}
        FILE.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
        return
    seconds: dict[str, list[float]] = {"first": [], "second": [], "other_text": []}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as cache:
            seconds["first"].append(timed(TEXTS[0], cache))
            seconds["second"].append(timed(TEXTS[0], cache))
            for text in TEXTS[1:]:
                timed(text, cache)
                seconds["other_text"].append(timed(text, cache))
    seconds |= resident_seconds()
    seconds["next_text_of_a_bucket"] = printed(NOTEBOOK)
    runs = [printed(SMOLLM2) for _ in range(REPEATS)]
    for name, values in zip(("load", "first_text", "next_text"), zip(*runs, strict=True), strict=True):
        seconds[f"smollm2_{name}"] = list(values)
    for depth in DEPTHS:
        seconds[f"{depth}_layers_compiled"] = [s for _ in range(3) for s in printed(DEPTH, str(depth))]
    result = {"environment": environment(), "repeats": REPEATS, "load_average": os.getloadavg()}
    result |= {name: summary(name, values) for name, values in seconds.items()}
    FILE.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
