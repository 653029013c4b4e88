"""Context as a rank-one update of each MLP's first weights, computed from a run with the context and one without.

An MLP whose first layer is `z W + b` returns the same for `z` with `W + ΔW` as for `z + Δz` with `W`, where
`ΔW = zᵀ (Δz W) / ‖z‖²`; a gated MLP has two such matrices, which take the same `Δz`. The update acts on another token's
`z'` as `W` acts on `z' + ⟨z', z⟩ / ‖z‖² Δz`, so a model is run with all layers' updates without building them.

Source: Dherin et al., "Learning without training: The implicit dynamics of in-context learning", 2025, Theorem 2.2;
for any token, any layer and norms, Innocenti & Achour, "A Simple Generalisation of the Implicit Dynamics of In-Context
Learning", 2025.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.in_context.runs import logits_of
from duat_jax.models.transformer import Transformer
from duat_jax.nn.mlp import MLP, GatedMLP


class States(NamedTuple):
    """The values inside each layer at one token, each `[layers, features]`; in a loop over layers, of one of them.

    Args:
        attention: the output of attention.
        stream: the residual stream after attention.
        normed: the MLP's input `z`, the normalised stream.
    """

    attention: Float[Array, "*layers features"]
    stream: Float[Array, "*layers features"]
    normed: Float[Array, "*layers features"]


class Update(NamedTuple):
    """The changes of each layer's weights, each `[layers, features]`; in a loop over layers, of one of them.

    Args:
        direction: `z / ‖z‖²`, for the MLP's input `z` for which the update is exact.
        change: `Δz`: every matrix `W` that the MLP's input is multiplied with becomes `W + directionᵀ (change W)`.
        residual: the bias that is added to the layer's output.
    """

    direction: Float[Array, "*layers features"]
    change: Float[Array, "*layers features"]
    residual: Float[Array, "*layers features"]


class Chosen(NamedTuple):
    """The updates that are made: one for those, zero for others.

    Args:
        tokens: the tokens at which they are applied, `[tokens]`.
        mlps: the layers whose MLP is updated, `[layers]`.
        attentions: the layers to whose output the difference of attention's output is added, `[layers]`.
        streams: the layers to whose output the difference of the whole stream after attention is added, `[layers]`;
            it is attention's alone where the earlier layers' outputs are the target's already.
    """

    tokens: Float[Array, "tokens"]
    mlps: Float[Array, "layers"]
    attentions: Float[Array, "layers"]
    streams: Float[Array, "layers"]


def update_between(base: States, target: States, residual: Float[Array, "*layers features"]) -> Update:
    """Return the rank-one updates with which one run's inputs of the MLPs give the outputs of another run."""
    norms = (base.normed**2).sum(-1, keepdims=True)
    return Update(base.normed / norms, target.normed - base.normed, residual)


def updated_mlp(mlp: MLP | GatedMLP, update: Update) -> MLP | GatedMLP:
    """Return an MLP with one layer's rank-one update in its weights; the residual isn't part of it."""
    new = nnx.clone(mlp)
    for linear in [new.input] if isinstance(new, MLP) else [new.input, new.factor]:
        kernel = linear.kernel[...]
        linear.kernel = nnx.Param(kernel + jnp.outer(update.direction, update.change @ kernel))
    return new


@jax.jit
def moved_pre_activations(
    model: Transformer, change: Float[Array, "layers features"]
) -> Float[Array, "layers neurons"]:
    """Return `Δz W` of every layer's first matrix, the gate's where there is one."""
    return jnp.stack([block.mlp.input.multiply(row) for block, row in zip(model.stack.blocks, change, strict=True)])


def _run(
    model: Transformer,
    ids: Int[Array, "tokens"],
    last: Int[Array, ""],
    tokens: Float[Array, "tokens"],
    update_of: Callable[[int, States], Update],
) -> tuple[Float[Array, "vocab"], States, Update]:
    """Run a pre-norm model whose layers are updated one after another, each by its states at the last token."""
    # Returns the log-probabilities after the last token, and every layer's states and update.
    x, states, updates = model.first(model.embed(ids)), [], []
    for i, block in enumerate(model.stack.blocks):
        attention = block.attention(block.norm_1(x))
        stream = x + attention
        normed = block.norm_2(stream)
        states.append(States(attention[last], stream[last], normed[last]))
        updates.append(update := update_of(i, states[-1]))
        moved = jnp.outer(tokens * (normed @ update.direction), update.change)
        x = stream + block.mlp(normed + moved) + jnp.outer(tokens, update.residual)
    x = x if model.final_norm is None else model.final_norm(x)
    logits = logits_of(model, model.head.states(x)[last][None])[0]
    return jax.nn.log_softmax(logits), *(
        jax.tree.map(lambda *rows: jnp.stack(rows), *each) for each in (states, updates)
    )


@jax.jit
def run_plainly(
    model: Transformer, ids: Int[Array, "tokens"], last: Int[Array, ""]
) -> tuple[Float[Array, "vocab"], States]:
    """Return the log-probabilities after the last token and the states there, nothing updated."""

    def nothing(_: int, states: States) -> Update:
        return Update(*map(jnp.zeros_like, (states.normed,) * 3))

    return _run(model, ids, last, jnp.zeros(len(ids), model.embed(ids).dtype), nothing)[:2]


@jax.jit
def run_to_target(
    model: Transformer, ids: Int[Array, "tokens"], last: Int[Array, ""], target: States, chosen: Chosen
) -> tuple[Float[Array, "vocab"], Update]:
    """Update layer after layer, each by what the earlier layers' updates leave it to do, and return these updates."""
    # With all MLPs and streams the last token's stream is the target's after every layer, by the theorem; with all MLPs
    # and attentions too, unless the token's embedding depends on its place.

    def update_of(i: int, states: States) -> Update:
        wanted: States = jax.tree.map(lambda layers: layers[i], target)
        residual = chosen.attentions[i] * (wanted.attention - states.attention)
        residual = residual + chosen.streams[i] * (wanted.stream - states.stream)
        update = update_between(states, wanted, residual)
        return update._replace(change=chosen.mlps[i] * update.change)

    log_probabilities, _, updates = _run(model, ids, last, chosen.tokens, update_of)
    return log_probabilities, updates


@jax.jit
def run_updated(
    model: Transformer,
    ids: Int[Array, "tokens"],
    last: Int[Array, ""],
    updates: Update,
    tokens: Float[Array, "tokens"],
) -> Float[Array, "vocab"]:
    """Return the log-probabilities after the last token with given updates of all layers."""

    def given(i: int, _: States) -> Update:
        return Update(*(layers[i] for layers in updates))

    return _run(model, ids, last, tokens, given)[0]


def updated_model(model: Transformer, updates: Update) -> Transformer:
    """Return a model with the updates in its weights and biases, as dense matrices, for tests of `run_updated`."""
    new = nnx.clone(model)
    for i, block in enumerate(new.stack.blocks):
        update = Update(*(layers[i] for layers in updates))
        block.mlp = updated_mlp(block.mlp, update)
        output = block.mlp.output
        bias = 0 if output.bias is None else output.bias[...]
        output.bias = nnx.data(nnx.Param(bias + update.residual))
    return new
