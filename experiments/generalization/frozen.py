"""Networks whose dynamic parameters are frozen at their means over many prompts, run again."""

from functools import partial

import jax
import numpy as np
from jaxtyping import Array, Float

from duat_jax.papers.parameters import SYMBOLS, dense_parameters, held_values, run_with
from duat_jax.transform.interpret import Seen
from experiments.frozen_parameters import is_pattern, movement, terms_of
from experiments.generalization.networks import Network

GROUPS = ("patterns", "norms", "weights", "biases")
"""The groups of parameters that are frozen: the attention patterns, the scales of the norms, both, which are all that
moves the closed form's weights, and the biases `c_j` of its terms."""


def _held(network: Network, x: Array) -> dict[str, Seen]:
    """Return the held values of one input by group."""
    held = held_values(network.states, x)
    patterns = {site: value for site, value in held.items() if is_pattern(site)}
    return {
        "patterns": patterns,
        "norms": {site: value for site, value in held.items() if site not in patterns},
        "weights": held,
    }


@jax.jit
def frozen(
    network: Network, inputs: Float[Array, "examples tokens inputs"]
) -> dict[str, Float[Array, "examples outputs"]]:
    """Return the outputs with each group of parameters frozen at its mean over all examples, the model run again."""
    # For biases each pre-activation is set to `W'_{j,2} x_0 + mean(c_j)`, all else is made anew.
    x = jax.vmap(network.embed)(inputs)
    means = jax.tree.map(lambda value: value.mean(0), jax.vmap(partial(_held, network))(x))
    outputs = {group: jax.vmap(partial(run_with, network.states), (0, None))(x, mean) for group, mean in means.items()}
    pre_activations, biases = jax.vmap(partial(terms_of, network.states, network.states))(x)
    moved = jax.tree.map(lambda z, c: z - c + c.mean(0), pre_activations, biases)
    return outputs | {GROUPS[-1]: jax.vmap(partial(run_with, network.states))(x, moved)}


@jax.jit
def _spread(network: Network, x: Array) -> list[list[Array]]:
    return jax.tree.map(movement, list(jax.vmap(partial(dense_parameters, network.states))(x)))


def spread(network: Network, inputs: Float[Array, "prompts tokens inputs"]) -> dict[str, float]:
    """Return how far each parameter of the closed form moves about its mean: `√(Σ ‖A − mean A‖² / Σ ‖A‖²)`."""
    by_kind = _spread(network, jax.vmap(network.embed)(inputs))
    return {
        symbol.format(j): float(np.asarray(value))
        for symbol, of_layers in zip(SYMBOLS, by_kind, strict=True)
        for j, value in enumerate(of_layers, 1)
    }
