"""Claim: the difference of two texts with every neuron's part costs 2.8 × the forward pass at 14 tokens, 3.7 × at 256.

Run `make .venv/.smollm2 && python -m benchmarks.secant` on two quiet cores.

One logit at the last position, between a text and the same with one token changed; everything jitted, all programs
measured in turn in the same run.  Two forward passes and the backward pass of a gradient are the floor.  Memory is that
of temporaries beside those of `jax.value_and_grad`.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax

import duat_jax as duat
from benchmarks.table import forward, gpt2_small, logit, run, smollm2

CASES = (("SmolLM2-135M", smollm2, (14, 256)), ("GPT-2-small's shape", gpt2_small, (128,)))
"""Of every model, the lengths of text."""


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


def _memory(measured: dict[str, Any], name: str) -> str:
    own, of_gradient = (measured[program]["temporary_mb"] for program in (name, "gradient"))
    return f"temporaries {own:.0f} MB, × {own / of_gradient:.2f} the gradient's"


if __name__ == "__main__":
    run(__doc__, Path("benchmarks/results/secant.json"), CASES, PROGRAMS, _memory)
