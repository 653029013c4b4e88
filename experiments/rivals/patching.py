"""Exact patching: the effect of one unit at a time, of a random sub-sample of units."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.evaluation.circuits import UnitKind, run, values
from duat_jax.inputs.prompts import Prompt
from duat_jax.models.transformer import Transformer

AT_ONCE = 16


def sampled(change: Float[Array, "layers tokens units"], count: int, seed: int) -> Int[Array, "sample"]:
    """Return the places, in the flattened array, of units drawn without replacement, in proportion to their change."""
    # Most units hardly change, and so have no effect that could be told from rounding; the change is no method's score.
    sizes = jnp.abs(change).ravel()
    return jax.random.choice(jax.random.key(seed), sizes.size, (count,), replace=False, p=sizes / sizes.sum())


@partial(jax.jit, static_argnames="kind")
def effects(model: Transformer, prompt: Prompt, kind: UnitKind, sample: Int[Array, "sample"]) -> Float[Array, "sample"]:
    """Return by how much the logit difference falls when one unit is set to its value on the corrupted text."""
    replaced = values(model, prompt.corrupted, kind)
    shape = replaced.shape if kind.unit == "neuron" else (*replaced.shape[:-1], 1)
    everything = jnp.ones(shape, bool)
    whole = run(model, prompt, kind, everything[None], replaced)[0]

    def of_unit(place: Array) -> Array:
        live = everything.ravel().at[place].set(False).reshape(shape)
        return whole - run(model, prompt, kind, live[None], replaced)[0]

    return jax.lax.map(of_unit, sample, batch_size=AT_ONCE)
