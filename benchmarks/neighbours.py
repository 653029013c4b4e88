"""Claim: every neuron's contribution to a logit costs a fraction of the most used tool's time for a part of them.

    python -m venv .venv-neighbours && .venv-neighbours/bin/pip install torch==2.13.0 transformer-lens==4.3.0
    python -m benchmarks.neighbours --python .venv-neighbours/bin/python

GPT-2-small's shape, random weights, float32, the same machine, in turn: TransformerLens runs the model with its cache,
takes the residual stream at the last position apart down to neurons, and projects the parts on one logit's direction;
ours is the complete table, every neuron at every position, carried through all later attention. Compile time stands
apart.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.environment import environment

TOKENS = (128, 512)
THEIRS = """
import json, sys, tempfile, time
import torch
from tokenizers import Tokenizer, models
from transformer_lens import TransformerBridge
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
tokens, repeats = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
random = GPT2LMHeadModel(GPT2Config()).eval()
with tempfile.TemporaryDirectory() as folder:
    random.save_pretrained(folder)
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="<|endoftext|>")
    model = TransformerBridge.boot_transformers(folder, hf_model=random, tokenizer=words)
model.enable_compatibility_mode()
text = torch.arange(tokens)[None]
def run():
    logits, cache = model.run_with_cache(text)
    parts = cache.get_full_resid_decomposition(layer=-1, expand_neurons=True, apply_ln=True, pos_slice=-1)
    return cache.logit_attrs(parts, tokens=11, pos_slice=-1, has_batch_dim=True)
seconds = []
with torch.no_grad():
    for _ in range(repeats + 1):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
print(json.dumps(seconds[1:]))
"""
OURS = """
import json, sys, time
import jax, jax.numpy as jnp
from flax import nnx
import duat_jax as duat
from benchmarks.table import gpt2_small, with_neurons
tokens, repeats = int(sys.argv[1]), int(sys.argv[2])
model, ids = gpt2_small(), jnp.arange(tokens)
began = time.perf_counter()
table = jax.jit(with_neurons).lower(model, ids).compile()
compiling, seconds = time.perf_counter() - began, []
for _ in range(repeats + 1):
    began = time.perf_counter()
    jax.block_until_ready(table(model, ids))
    seconds.append(time.perf_counter() - began)
print(json.dumps([compiling, *seconds[1:]]))
"""


def run(python: str, program: str, tokens: int, repeats: int) -> list[float]:
    """Run a program, and return its output.

    Args:
        python: the interpreter.
        program: its text.
        tokens: length of the text.
        repeats: how often it runs.
    """
    command = [python, "-c", program, str(tokens), str(repeats)]
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=offline)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Run the measurements, print them, and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=".venv-neighbours/bin/python", help="an interpreter with TransformerLens")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/neighbours.json"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "repeats": arguments.repeats}
    for tokens in TOKENS:
        theirs = run(arguments.python, THEIRS, tokens, arguments.repeats)
        compiling, *ours = run(sys.executable, OURS, tokens, arguments.repeats)
        quartiles = {
            name: np.percentile(seconds, [25, 50, 75]).tolist()
            for name, seconds in (("theirs", theirs), ("ours", ours))
        }
        times = quartiles["theirs"][1] / quartiles["ours"][1]
        result[f"{tokens}_tokens"] = {"quartiles_s": quartiles, "compile_s": compiling, "times": times}
        print(
            f"{tokens:4d} tokens  TransformerLens, last position {quartiles['theirs'][1]:.2f} s"
            f"  ours, every position {quartiles['ours'][1]:.3f} s (compiled once in {compiling:.0f} s)  × {times:.0f}"
        )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
