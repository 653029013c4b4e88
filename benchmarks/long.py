"""Claim: the complete table costs at most 1.65 × the forward pass at 1,024 tokens and 2 × at 4,096; no pattern is kept.

Run `python -m benchmarks.long`.

GPT-2-small's shape with random weights and places for 4,096 tokens, as in `benchmarks.table`.  Memory beyond weights
and table is that of temporaries: at most 1 GB at 4,096 tokens, and proportional to tokens.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from flax import nnx

import duat_jax as duat
from benchmarks.table import CONFIG, measure
from experiments.environment import environment

# A vocabulary of 50,257 would be a third of the weights, and no part of what is measured.
LONG = dataclasses.replace(CONFIG, vocab=4096, positions=4096, head=dataclasses.replace(CONFIG.head, outputs=4096))
TOKENS = (512, 1024, 2048, 4096)


def main() -> None:
    """Run the measurements, print them, and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/long.json"))
    arguments = parser.parse_args()
    model = duat.models.Transformer(LONG, rngs=nnx.Rngs(0))
    result: dict[str, Any] = {"environment": environment(), "repeats": arguments.repeats}
    for tokens in TOKENS:
        result[f"{tokens}_tokens"] = measured = measure(model, tokens, arguments.repeats)
        for name, times in measured.items():
            if name != "completeness":
                low, high = times["quartiles_of_ratio"]
                print(
                    f"{tokens:4d} tokens  {name:16s}"
                    f" {times['median_s'] * 1e3:7.1f} ms  × {times['median_of_ratio']:.2f}"
                    f"  [{low:.2f}, {high:.2f}]  temporaries {times['temporary_mb']:.0f} MB"
                    f"  ({times['temporary_mb'] / tokens * 1e3:.0f} kB a token)  compile {times['compile_s']:.1f} s"
                )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
