"""Claim: a secant in all weights takes at most 1.7 × the gradient's time for a text of 256 tokens.

Run `make install && python -m benchmarks.secant_weights` on two quiet cores (six minutes).

One logit of a model at the last position, between its weights and the same rounded to bfloat16; everything
jitted, all programs measured in turn in the same run.  By counting products 4/3 of the gradient is the floor; beside
them every weight is read at both points, and a multiplier and a part of each is written and summed.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import duat_jax as duat
from benchmarks.secant import beside_the_gradient
from benchmarks.table import logit, run, smollm2

Pair = tuple[duat.models.Transformer, duat.models.Transformer]


def rounded(load: Callable[[], duat.models.Transformer]) -> Pair:
    """Return a model, and the same with its weights rounded to bfloat16.

    Args:
        load: returns the model.
    """
    model = load()
    return model, jax.tree.map(lambda weight: weight.astype(jnp.bfloat16).astype(weight.dtype), model)


def _loss(structure: Any, ids: jax.Array, weights: Any) -> jax.Array:
    model = nnx.merge(structure, weights)
    return logit(model, model.embed(ids))


def forward(pair: Pair, ids: jax.Array) -> jax.Array:
    """Return the logit."""
    return logit(pair[0], pair[0].embed(ids))


def gradient(pair: Pair, ids: jax.Array) -> Any:
    """Return the logit and its gradient in the weights."""
    structure, weights = nnx.split(pair[0])
    return jax.value_and_grad(lambda weights: _loss(structure, ids, weights))(weights)


def secant(pair: Pair, ids: jax.Array) -> duat.results.Secant:
    """Return the difference of the logit, split over every weight."""
    (structure, weights), (_, others) = map(nnx.split, pair)
    return duat.secant(lambda weights: _loss(structure, ids, weights))(weights, others)


if __name__ == "__main__":
    run(
        __doc__,
        Path("benchmarks/results/secant_weights.json"),
        [
            ("SmolLM2-135M", partial(rounded, smollm2), (64, 256)),
            ("the embedded model", partial(rounded, duat.load), (64, 256)),
        ],
        {"forward": forward, "gradient": gradient, "secant": secant},
        beside_the_gradient,
    )
