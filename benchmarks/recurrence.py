"""Claim: of selective scans a table costs 2.5 × the forward pass and a difference 1.6 × the gradient, at most.

Run `make install && python -m benchmarks.recurrence` on two quiet cores (ten minutes).

Mamba-130M's shape (24 layers of 768 features, 1,536 channels of 16 states) with random weights: one number at the last
token, between a text and the same with the eighth token from the end changed; everything jitted, all programs measured
in turn in the same run.  The scan is `jax.lax.scan` over tokens, as one writes it; decays, input and output weights and
gates are held in the table.  Memory is that of temporaries beside those of `jax.value_and_grad`.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import duat_jax as duat
from benchmarks.secant import beside_the_gradient
from benchmarks.table import run
from experiments.markdown import Fields

LAYERS, FEATURES, STATES, KERNEL = 24, 768, 16, 4
CHANNELS, RANK = 2 * FEATURES, FEATURES // 16
VOCABULARY = 2048

RESULTS = Path("benchmarks/results/recurrence.json")

Weights = dict[str, Array]


class Model(NamedTuple):
    """Embeddings, and the weights of all layers, stacked."""

    embeddings: Float[Array, "vocab features"]
    layers: Weights


def random_model() -> Model:
    """Return a model of Mamba-130M's shape with random weights."""
    shapes = {
        "in": (FEATURES, 2 * CHANNELS),
        "convolution": (KERNEL, CHANNELS),
        "gates": (CHANNELS, RANK + 2 * STATES),
        "step": (RANK, CHANNELS),
        "out": (CHANNELS, FEATURES),
    }
    keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
    layers = {
        name: jax.random.normal(key, (LAYERS, *shape)) / shape[0] ** 0.5
        for key, (name, shape) in zip(keys[1:], shapes.items(), strict=True)
    }
    return Model(jax.random.normal(keys[0], (VOCABULARY, FEATURES)), layers)


def selective_scan(
    u: Float[Array, "tokens channels"],
    step: Float[Array, "tokens channels"],
    into: Float[Array, "tokens states"],
    out: Float[Array, "tokens states"],
) -> Float[Array, "tokens channels"]:
    """Return `y_n = h_n c_n` of the states `h_n = exp(−Δ_n ⊗ r) ⊙ h_{n−1} + (Δ_n ⊙ u_n) b_nᵀ`, rates `r = 1, 2, …`."""

    def one(state: Array, token: tuple[Array, ...]) -> tuple[Array, Array]:
        u, step, into, out = token
        state = jnp.exp(-step[:, None] * jnp.arange(1.0, STATES + 1)) * state + (step * u)[:, None] * into
        return state, state @ out

    return jax.lax.scan(one, jnp.zeros((CHANNELS, STATES)), (u, step, into, out))[1]


def layer(x: Float[Array, "tokens features"], weights: Weights) -> Float[Array, "tokens features"]:
    """Return the stream after one layer."""
    scale = duat.hold(jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5), "scale")
    u, gate = jnp.split((x * scale) @ weights["in"], 2, axis=-1)
    padded = jnp.pad(u, ((KERNEL - 1, 0), (0, 0)))
    mixed = sum(padded[k : k + len(u)] * weights["convolution"][k] for k in range(KERNEL))
    u = duat.term(jax.nn.silu, jnp.asarray(mixed), "convolution")
    step, into, out = jnp.split(u @ weights["gates"], (RANK, RANK + STATES), axis=-1)
    step = duat.hold(jax.nn.softplus(step @ weights["step"] - 2.0), "step")
    y = selective_scan(u, step, duat.hold(into, "into"), duat.hold(out, "out")) + u
    return duat.stream(x + (y * duat.hold(jax.nn.silu(gate), "gate")) @ weights["out"], "layer")


def number(model: Model, x: Float[Array, "tokens features"]) -> Float[Array, ""]:
    """Return one number at the last token from the embeddings."""
    return jax.lax.scan(lambda x, weights: (layer(x, weights), None), x, model.layers)[0][-1, 0]


def forward(model: Model, ids: Array) -> Array:
    """Return the number, from the plain forward pass."""
    return number(model, model.embeddings[ids % VOCABULARY])


def gradient(model: Model, ids: Array) -> Any:
    """Return the number and its gradient at the embeddings."""
    return jax.value_and_grad(partial(number, model))(model.embeddings[ids % VOCABULARY])


def table(model: Model, ids: Array) -> duat.results.Decomposition:
    """Return the complete table: embedding × token, layer × token × channel, every bias."""
    return duat.decompose(partial(number, model), model.embeddings[ids % VOCABULARY])


class Parts(NamedTuple):
    """Parts of tokens, which sum."""

    tokens: Array
    completeness: duat.results.Completeness


def difference(model: Model, ids: Array) -> Parts:
    """Return the parts of all tokens of a difference."""
    x = model.embeddings[ids % VOCABULARY]
    split = duat.secant(partial(number, model))(x, x.at[-8].set(model.embeddings[-1]))
    return Parts(split.parts.sum(-1), split.completeness)


PROGRAMS = {"forward": forward, "gradient": gradient, "table": table, "difference": difference}
CASES = (("Mamba-130M's shape", random_model, (128, 1024)),)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    cases = [measured for measured in results.values() if isinstance(measured, dict) and "table" in measured]

    def ratios(program: str, other: str, what: str) -> str:
        return " and ".join(f"{each[program][what] / each[other][what]:.2f}" for each in cases)

    return {
        "table": ratios("table", "forward", "median_s"),
        "difference": ratios("difference", "gradient", "median_s"),
        "memory of the table": ratios("table", "gradient", "temporary_mb"),
        "memory of the difference": ratios("difference", "gradient", "temporary_mb"),
    }


if __name__ == "__main__":
    run(__doc__, RESULTS, CASES, PROGRAMS, beside_the_gradient)
