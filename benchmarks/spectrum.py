"""Claim: eight leading singular triplets of a language model's collapse cost at most 40 × its forward pass.

Run `make install && python -m benchmarks.spectrum`, or name a model:
`python -m benchmarks.spectrum --model PATH`.

SmolLM2, 32 tokens, everything jitted, every program measured in turn in the same run.  The forward pass gives all
logits.  The collapse is taken from the embeddings to the last position's state, to all states, and to all logits; its
triplets are taken with the default number of iterations, their errors measured among them.  `converged` is the largest
error beside the largest singular value.
"""

import argparse
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

TEXT = (
    "When John and Mary went to the store to buy a bottle of milk for the family, he looked around for a while, and"
    " then John gave the bottle of milk to his friend and went home with"
)
TOKENS, TRIPLETS = 32, 8
READ: dict[str, Callable[[duat.models.Transformer, jax.Array], jax.Array]] = {
    "last state": lambda model, x: model.states(x)[-1],
    "states": lambda model, x: model.states(x),
    "logits": lambda model, x: model.output(x),
}


def collapsed(read: Callable[[duat.models.Transformer, jax.Array], jax.Array]) -> Callable:
    """Return the jitted function from a model and a text to the collapse's linear map.

    Args:
        read: what is read of the model, from its embeddings on.
    """
    return jax.jit(lambda model, ids: duat.collapse(lambda x: read(model, x), model.embed(ids)).linear)


def programs(model: duat.models.Transformer, ids: jax.Array) -> dict[str, Callable[[], Any]]:
    """Return the measured programs, by name.

    Args:
        model: the model.
        ids: the text.
    """
    forward = jax.jit(lambda model, ids: model(ids))
    apply = jax.jit(lambda linear, x: linear(x))
    by_name: dict[str, Callable[[], Any]] = {"forward": lambda: forward(model, ids)}
    for name, read in READ.items():
        make = collapsed(read)
        linear = make(model, ids)
        x, u = (jnp.ones(like.shape, like.dtype) for like in (linear.input, linear.output))
        by_name |= {
            f"{name}: making the map": lambda make=make: make(model, ids),
            f"{name}: map applied": lambda linear=linear, x=x: apply(linear, x),
            f"{name}: transpose applied": lambda linear=linear, u=u: apply(linear.T, u),
            f"{name}: triplets": lambda linear=linear: duat.operators.singular_triplets(
                linear, TRIPLETS, key=jax.random.key(0)
            ),
        }
    last = collapsed(READ["last state"])(model, ids)
    return by_name | {"last state: token norms": lambda: duat.operators.token_norms(last)}


def main() -> None:
    """Run the measurements, print them, and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/spectrum.json"))
    arguments = parser.parse_args()
    path = arguments.model or smollm2.path()
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    ids = jnp.array(tokenizer.encode(TEXT).ids[:TOKENS])
    measured, result = programs(model, ids), {"environment": environment(), "model": path.name, "tokens": len(ids)}
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for repeat in track(range(arguments.repeats + 1)):
        for name, program in measured.items():
            began = time.perf_counter()
            jax.block_until_ready(program())
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    for name, values in seconds.items():
        low, middle, high = np.percentile(np.array(values) / np.array(seconds["forward"]), [25, 50, 75])
        result[name] = {"median_s": np.median(values), "ratio": middle, "quartiles_of_ratio": [low, high]}
        line = f"{name:28s} {np.median(values) * 1e3:8.1f} ms  × {middle:6.2f}  [{low:.2f}, {high:.2f}]"
        if name.endswith("triplets"):
            triplets = measured[name]()
            converged = triplets.errors / triplets.values[0]
            result[name] |= {"values": triplets.values.tolist(), "errors": triplets.errors.tolist()}
            line += f"  converged to {float(converged.max()):.1e}"
        print(line)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
