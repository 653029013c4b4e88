"""Changes of the closed form's parameters with the prompt, and the effect of each source of change."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms.closed_form import unroll
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds
from experiments.approximation.selection import Network
from experiments.frozen_parameters import held_values, run_with


class Parameters(NamedTuple):
    """Parameters of the closed form at one input, as dense arrays: `x_L = P_L x_0 + q_L + Σ_j C_j σ(B_j x_0 + c_j)`.

    Args:
        paths: `W'_{j,1}` (`P_j`) of every layer, matrices on `vec(x_0)`.
        inners: `W'_{j,2}` (`B_j`) of every term.
        outers: `W'_{j,3}` (`C_j`) of every term, carried to the last layer.
        biases: `b'_{j,3}` (`q_j`) of every layer, `[tokens, features]`.
        inner_biases: `b'_{j,2}` (`c_j`) of every term, `[tokens, neurons]`: the earlier terms are in it.
    """

    paths: list[Array]
    inners: list[Array]
    outers: list[Array]
    biases: list[Array]
    inner_biases: list[Array]


SYMBOLS = ("W'{},1", "W'{},2", "W'{},3", "q{}", "c{}")
"""The label of each kind, with its layer's number."""


def parameters(states: Callable[[Array], Array], x: Float[Array, "tokens features"]) -> Parameters:
    """Return the parameters of a network's closed form at one input."""
    form = unroll(states, x)
    layers = range(1, len(form.terms) + 1)
    return Parameters(
        [form.input_map(j).dense() for j in layers],
        [form.inner_map(j).dense() for j in layers],
        [form.outer_map(j, len(layers)).dense() for j in layers],
        [form.bias(j) for j in layers],
        [form.inner_bias(j) for j in layers],
    )


def _embedded(network: Network, content: Array) -> Array:
    """Return the embeddings of one sequence after every prompt, `[prompts, tokens, features]`."""
    return jax.vmap(network.embed, (None, 0))(content, jnp.arange(len(network.prompt[...])))


def _apart(first: Array, second: Array) -> Array:
    """Return `‖A − B‖ / √((‖A‖² + ‖B‖²) / 2)`, or zero if both are zero."""
    size = jnp.sqrt(((first**2).sum() + (second**2).sum()) / 2)
    return jnp.sqrt(((first - second) ** 2).sum()) / jnp.where(size == 0, 1, size)


@jax.jit
def changes(network: Network, content: Float[Array, "number content"]) -> dict[str, Float[Array, "prompts prompts"]]:
    """Return the relative difference of every parameter between two prompts before the same sequence."""
    # `‖A(p) − A(q)‖ / √((‖A(p)‖² + ‖A(q)‖²) / 2)`, the mean over sequences.

    def of_one(content: Array) -> Parameters:
        by_prompt = jax.vmap(partial(parameters, network.states))(_embedded(network, content))
        return jax.tree.map(lambda a: jax.vmap(jax.vmap(_apart, (None, 0)), (0, None))(a, a), by_prompt)

    mean = jax.tree.map(lambda change: change.mean(0), jax.lax.map(of_one, content))
    return {
        symbol.format(j): change
        for symbol, of_layers in zip(SYMBOLS, mean, strict=True)
        for j, change in enumerate(of_layers, 1)
    }


def evaluated(
    network: Network, x: Float[Array, "tokens features"], weights: Parameters, biases: Parameters
) -> Float[Array, "content"]:
    """Evaluate the closed form with the weights of one input and the term biases of another."""
    # `P_L x_0 + q_L + Σ_j C_j σ(B_j x_0 + c_j)`, written out: `c_j` from `biases`, everything else from `weights`.
    flat = x.reshape(-1)
    state = weights.paths[-1] @ flat + weights.biases[-1].reshape(-1)
    for inner, outer, bias in zip(weights.inners, weights.outers, biases.inner_biases, strict=True):
        state = state + outer @ jax.nn.gelu(inner @ flat + bias.reshape(-1), approximate=False)
    return network.read(state.reshape(x.shape))


SOURCES = ("input", "weights", "biases")
"""The sources of the difference between two prompts: the prompt's own embedding, the weights `W'` and `q`,
the terms' biases `c`."""

CORNERS = tuple(product((False, True), repeat=len(SOURCES)))
"""Every choice of sources that come from the prompt itself; the rest comes from another prompt."""


class Exchanged(NamedTuple):
    """Outputs of a network whose sources come partly from one prompt, `p`, and partly from another one, `q`.

    Args:
        corners: for each of `CORNERS`, `[corners, number, p, q, content]`.
        rerun_weights: the model run again after prompt `p` with the attention patterns of `q`,
            `[number, p, q, content]`.
        rerun_biases: the same with patterns made anew and each `c_j` set to that of `q`.
    """

    corners: Float[Array, "corners number prompts prompts content"]
    rerun_weights: Float[Array, "number prompts prompts content"]
    rerun_biases: Float[Array, "number prompts prompts content"]


@jax.jit
def exchange(network: Network, content: Float[Array, "number content"]) -> Exchanged:
    """Exchange the sources of difference between two prompts, one by one: held in the closed form, and run again."""

    def of_pair(x: Array, own: Parameters, y: Array, other: Parameters) -> tuple[Array, Array, Array]:
        corners = [evaluated(network, x if i else y, own if w else other, own if b else other) for i, w, b in CORNERS]
        recording = record_kinds(network.states, x, (marks.PRE_ACTIVATION,))
        terms = {
            site: (inner @ x.reshape(-1) + bias.reshape(-1)).reshape(recording.seen[site].shape)
            for site, inner, bias in zip(
                recording.program.of_kind(marks.PRE_ACTIVATION), own.inners, other.inner_biases, strict=True
            )
        }
        with_patterns = run_with(network.states, x, held_values(network.states, y))
        return jnp.stack(corners), with_patterns, run_with(network.states, x, terms)

    def of_one(content: Array) -> tuple[Array, Array, Array]:
        x = _embedded(network, content)
        by_prompt = jax.vmap(partial(parameters, network.states))(x)
        over_others = jax.vmap(of_pair, (None, None, 0, 0))
        return jax.vmap(over_others, (0, 0, None, None))(x, by_prompt, x, by_prompt)

    corners, weights, biases = jax.lax.map(of_one, content)
    return Exchanged(jnp.moveaxis(corners, 3, 0), weights, biases)


@jax.jit
def with_mean_patterns(
    network: Network, content: Float[Array, "number content"]
) -> Float[Array, "number prompts content"]:
    """Return a network's outputs with every attention pattern replaced by its mean over all sequences and prompts."""
    x = jax.vmap(partial(_embedded, network))(content)
    of_all = jax.vmap(jax.vmap(partial(held_values, network.states)))(x)
    mean = jax.tree.map(lambda pattern: pattern.mean((0, 1)), of_all)
    return jax.vmap(jax.vmap(lambda x: run_with(network.states, x, mean)))(x)


def way(
    written: Float[Array, "... number p q content"], outputs: Float[Array, "number p content"]
) -> Float[Array, "..."]:
    """Return the relative position of outputs between those after the other prompt (0) and after the own prompt (1)."""
    # `Σ ⟨y − y_q, y_p − y_q⟩ / Σ ‖y_p − y_q‖²` over sequences and all pairs of prompts: 0 where it is `y_q`, 1 where it
    # is `y_p`.
    own, other = outputs[:, :, None], outputs[:, None]
    return ((written - other) * (own - other)).sum((-4, -3, -2, -1)) / ((own - other) ** 2).sum()
