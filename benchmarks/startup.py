"""Claim: `import duat_jax`, with everything public in it, takes less than 1.5 × `import jax, flax.nnx`.

Run `python -m benchmarks.startup`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from experiments.environment import environment

PROGRAMS = {
    "jax_and_flax": "import jax, flax.nnx",
    "duat_jax": "import duat_jax",
    "everything_public": "import duat_jax; [getattr(duat_jax, name) for name in duat_jax.__all__]",
    "duat_help": "import sys; sys.argv = ['duat', '--help']; from duat_jax.cli import application; application()",
}
REPEATS = 7


def main() -> None:
    """Run the measurements, print them, and store the result."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for repeat in range(REPEATS + 1):
        for name, code in PROGRAMS.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    result = {"environment": environment(), "repeats": REPEATS}
    for name, values in seconds.items():
        result[name] = {"median_s": float(np.median(values)), "quartiles_s": np.percentile(values, [25, 75]).tolist()}
        ratio = result[name]["median_s"] / np.median(seconds["jax_and_flax"])
        print(f"{name:18s} {result[name]['median_s']:.2f} s  × {ratio:.2f}")
    Path("benchmarks/results/startup.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
