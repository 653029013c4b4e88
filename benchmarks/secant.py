"""Claim: the difference of two texts with every neuron's part costs 2.8 × the forward pass at 14 tokens, 3.7 × at 256.

Run `make .venv/.smollm2 && python -m benchmarks.secant` on two quiet cores.

One logit at the last position, between a text and the same with one token changed; everything jitted, all programs
measured in turn in the same run.  Two forward passes and the backward pass of a gradient are the floor.  Memory is that
of temporaries beside those of `jax.value_and_grad`.
"""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax

import duat_jax as duat
from benchmarks.environment import environment
from benchmarks.table import forward, gpt2_small, logit, measure, smollm2

CASES = (("SmolLM2-135M", smollm2, (14, 256)), ("GPT-2-small's shape", gpt2_small, (128,)))
"""Of every model, the lengths of text."""


def gradient(model: duat.Transformer, ids: jax.Array) -> Any:
    """The logit and its gradient at the embeddings."""
    return jax.value_and_grad(lambda x: logit(model, x))(model.embed(ids))


class Parts(NamedTuple):
    """What is asked for: every token's part, every stream's at every token, every neuron's."""

    tokens: jax.Array
    streams: duat.Marked
    neurons: duat.Marked
    completeness: duat.Completeness


def _parts(model: duat.Transformer, ids: jax.Array, at: tuple[str, ...]) -> Parts:
    other = ids.at[ids.shape[0] // 2].add(1000)
    found = duat.secant(lambda x: logit(model, x), at=at)(model.embed(ids), model.embed(other))
    streams, neurons = found.contributions.streams, found.contributions.activations
    return Parts(found.parts.sum(-1), jax.tree.map(lambda part: part.sum(-1), streams), neurons, found.completeness)


def without_neurons(model: duat.Transformer, ids: jax.Array) -> Parts:
    """Tokens and streams."""
    return _parts(model, ids, ("stream",))


def with_neurons(model: duat.Transformer, ids: jax.Array) -> Parts:
    """Neurons too."""
    return _parts(model, ids, ("stream", "activation"))


PROGRAMS = {
    "forward": forward,
    "gradient": gradient,
    "without_neurons": without_neurons,
    "with_neurons": with_neurons,
}


def main() -> None:
    """Measure, print, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/secant.json"))
    arguments = parser.parse_args()
    result: dict[str, Any] = {"environment": environment(), "repeats": arguments.repeats}
    for called, make, tokens in ((called, make, n) for called, make, lengths in CASES for n in lengths):
        result[f"{called}, {tokens} tokens"] = measured = measure(make(), tokens, arguments.repeats, PROGRAMS)
        for name in PROGRAMS:
            found = measured[name]
            print(
                f"{called}, {tokens:4d} tokens  {name:16s}"
                f" {found['median_s'] * 1e3:7.1f} ms  × {found['ratio_of_medians']:.2f}"
                f"  [{found['quartiles_of_ratio'][0]:.2f}, {found['quartiles_of_ratio'][1]:.2f}]"
                f"  temporaries {found['temporary_mb']:.0f} MB,"
                f" × {found['temporary_mb'] / measured['gradient']['temporary_mb']:.2f} the gradient's"
                f"  compile {found['compile_s']:.1f} s"
            )
        error, value = (abs(measured["completeness"][name]) for name in ("error", "value"))
        print(f"{called}, {tokens:4d} tokens  completeness: {error / value:.1e} of the difference")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
