"""Claims: proof of all blocks and document of 32 layers under 2 s, audit and a block read from a program under 10 s.

Run `python -m benchmarks.symbolic`. Every repeat is a new process, so that nothing is remembered from the one before.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import sympy

from experiments.environment import environment

PROGRAMS = {
    "proof_of_all_blocks": "from symbolic.catalogue import derive; work = lambda: derive('proof')",
    "document_of_32_layers": (
        "from symbolic.blocks.transformer import transformer_block; block = transformer_block('pre-norm')\n"
        "work = lambda: block.document(32)"
    ),
    "audit": "from symbolic.audit.audit import audit as work",
    "block_of_the_embedded_models_layer": (
        "import jax.numpy as jnp, duat_jax as duat; from symbolic import Block; model = duat.load()\n"
        "x = model.embed(jnp.array(duat.load_tokenizer().encode('return self.').ids))\n"
        "work = lambda: Block.from_function(model.stack.blocks[0], x).prove()"
    ),
}
MEASURE = "import time; began = time.perf_counter(); work(); print(time.perf_counter() - began)"
REPEATS = 7


def main() -> None:
    """Run the measurements, print them, and store the result."""
    result = {"environment": environment() | {"sympy": sympy.__version__}, "repeats": REPEATS}
    for name, code in PROGRAMS.items():
        command = [sys.executable, "-c", f"{code}\n{MEASURE}"]
        seconds = [
            float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(REPEATS)
        ]
        result[name] = {"median_s": float(np.median(seconds)), "quartiles_s": np.percentile(seconds, [25, 75]).tolist()}
        print(f"{name:34s} {result[name]['median_s']:.2f} s")
    Path("benchmarks/results/symbolic.json").write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
