"""Claim: a secant in the inputs takes at most 1.7 × the gradient's time, for texts of up to 4,096 tokens.

Run `make install && python -m benchmarks.secant` on two quiet cores (ten minutes).

One logit at the last position, between a text and the same with one token changed; everything jitted, all programs
measured in turn in the same run.  Two forward passes and the backward pass of a gradient are the floor: by counting
products 3/2 of the gradient.  Memory is that of temporaries beside those of `jax.value_and_grad`.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
from flax import nnx

import duat_jax as duat
from benchmarks.table import CONFIG, forward, logit, run
from experiments.kept_results import kept
from experiments.markdown import Fields


def four_layers() -> duat.models.Transformer:
    """Return a random model of four layers of GPT-2-small's shape, for long texts."""
    config = dataclasses.replace(CONFIG, blocks=CONFIG.blocks[:4], positions=4096)
    return duat.models.Transformer(config, rngs=nnx.Rngs(0))


CASES = (("four layers of GPT-2-small's shape", four_layers, (128, 512, 1024, 2048, 4096)),)
"""Of every model, the lengths of text."""

RESULTS = Path("benchmarks/results/secant.json")


def gradient(model: duat.models.Transformer, ids: jax.Array) -> Any:
    """Return the logit and its gradient at the embeddings."""
    return jax.value_and_grad(lambda x: logit(model, x))(model.embed(ids))


class Parts(NamedTuple):
    """Parts of tokens, of streams at every token, and of neurons."""

    tokens: jax.Array
    streams: duat.results.Marked
    neurons: duat.results.Marked
    completeness: duat.results.Completeness


def _parts(model: duat.models.Transformer, ids: jax.Array, at: tuple[str, ...]) -> Parts:
    other = ids.at[ids.shape[0] // 2].add(1000)
    split = duat.secant(lambda x: logit(model, x), at=at)(model.embed(ids), model.embed(other))
    streams, neurons = split.contributions.streams, split.contributions.activations
    return Parts(split.parts.sum(-1), jax.tree.map(lambda part: part.sum(-1), streams), neurons, split.completeness)


def without_neurons(model: duat.models.Transformer, ids: jax.Array) -> Parts:
    """Return the parts of tokens and streams."""
    return _parts(model, ids, ("stream",))


def with_neurons(model: duat.models.Transformer, ids: jax.Array) -> Parts:
    """Return the parts of tokens, streams and neurons."""
    return _parts(model, ids, ("stream", "activation"))


PROGRAMS = {
    "forward": forward,
    "gradient": gradient,
    "without_neurons": without_neurons,
    "with_neurons": with_neurons,
}


def beside_the_gradient(measured: dict[str, Any], name: str) -> str:
    """Return a program's time and memory beside those of the gradient.

    Args:
        measured: of every program.
        name: the program.
    """
    time, memory = (measured[name][what] / measured["gradient"][what] for what in ("median_s", "temporary_mb"))
    return f"× {time:.2f} the gradient's time, × {memory:.2f} its {measured['gradient']['temporary_mb']:.0f} MB"


def times_of(results: dict[str, Any], program: str) -> dict[str, str]:
    """Return how long a program takes beside the gradient, by case.

    Args:
        results: the kept results.
        program: the program.
    """
    cases = {name: measured for name, measured in results.items() if isinstance(measured, dict) and program in measured}
    return {name: f"{each[program]['median_s'] / each['gradient']['median_s']:.2f}" for name, each in cases.items()}


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    in_weights = kept("secant_weights")
    weights = times_of(in_weights, "secant")
    cases = [in_weights[name] for name in weights]
    peaks, temporaries = (
        [each["secant"][what] / each["gradient"][what] for each in cases] for what in ("peak_mb", "temporary_mb")
    )
    of_inputs = times_of(results, "without_neurons")
    return {
        "inputs": f"{min(of_inputs.values())} to {max(of_inputs.values())}",
        "weights": ", ".join(f"{time} with {name.replace(',', ' at')}" for name, time in weights.items()),
        "memory in weights": f"{min(peaks):.2f} to {max(peaks):.2f}",
        "temporary memory in weights": f"{min(temporaries):.2f} to {max(temporaries):.2f}",
    }


if __name__ == "__main__":
    run(__doc__, RESULTS, CASES, PROGRAMS, beside_the_gradient)
