"""Claim: in one process, 200 prompts of the embedded model are explained within ten seconds after the first.

Run `make install && python -m benchmarks.many_prompts` on two quiet cores.

The prompts are different texts of 5 to 60 tokens. Each time a command runs in a process of its own, with the programs
that it compiled before in the cache; beside it stands the same command with the first prompt alone.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import duat_jax as duat
from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path(__file__).parent / "results" / "many_prompts.json"
COMMANDS = {
    "explain": [],
    "attribute": ["--baseline", "mean"],
    "intervene": ["--edit", "head 5:3 set 0"],
    "contrast": ["--baseline", "mean"],
    "graph": [],
}
PROMPTS, FEWEST, MOST, REPEATS = 200, 5, 60, 3
TEXT = "def get(self, key, default=None): return self.data.get(key, missing) for i in range(10): print(x, y)"


def prompts() -> list[str]:
    """Return different texts of the embedded model's own tokens."""
    draw, tokenizer = random.Random(0), duat.load_tokenizer()
    ids = tokenizer.encode(TEXT).ids
    return [tokenizer.decode(draw.choices(ids, k=draw.randint(FEWEST, MOST))) for _ in range(PROMPTS)]


def seconds_of(command: str, file: Path) -> float:
    """Return the time of a process that answers all prompts of a file.

    Args:
        command: the command's name.
        file: a prompt on each line.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = [sys.executable, "-m", "duat_jax", command, str(file), "--out", f"{folder}/out", *COMMANDS[command]]
        began = time.perf_counter()
        subprocess.run(asked, check=True, capture_output=True)
        return time.perf_counter() - began


def fields(results: dict[str, Any]) -> Fields:
    """Return the table of the documentation pages.

    Args:
        results: the kept results.
    """
    rows = []
    for command, found in results["commands"].items():
        one, every = np.array(found["one"]), np.array(found["all"])
        rows.append([f"`duat {command}`", *map(_median, (one, every, every - np.median(one)))])
    head = ["", "one prompt", f"{PROMPTS} prompts", "after the first"]
    return {"table": "\n".join(table(head, rows))}


def _median(seconds: np.ndarray) -> str:
    """Return the median with the smallest and the largest."""
    return f"{np.median(seconds):z.1f} s [{seconds.min():z.1f}, {seconds.max():z.1f}]"


def main() -> None:
    """Measure every command, and keep the results."""
    commands: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        every, one = Path(folder) / "all.jsonl", Path(folder) / "one.jsonl"
        lines = [json.dumps(text) + "\n" for text in prompts()]
        every.write_text("".join(lines))
        one.write_text(lines[0])
        for command in COMMANDS:
            seconds_of(command, every)  # compiles the programs of every length
            files = {"one": one, "all": every}
            commands[command] = {
                name: sorted(seconds_of(command, file) for _ in range(REPEATS)) for name, file in files.items()
            }
            print(command, {name: round(float(np.median(found)), 1) for name, found in commands[command].items()})
    RESULTS.write_text(json.dumps({"environment": environment(), "commands": commands}, indent=1) + "\n")


if __name__ == "__main__":
    main()
