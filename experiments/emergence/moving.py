"""The closed form's parameters: their movement, what freezing them costs, its parts; and what heads attend to."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.forms.closed_form import unroll
from duat_jax.models.transformer import Transformer
from duat_jax.papers.parameters import held_values, run_with
from duat_jax.transform.interpret import Seen
from experiments.frozen_parameters import is_pattern, terms_of
from experiments.frozen_parameters import movement as movement_of

PATTERNS, SCALES, WEIGHTS, BIASES = "patterns", "scales", "patterns and scales", "biases"
"""The groups of parameters: attention patterns, norms' scales, both, and the biases of the terms."""
NOTHING, OTHER_TEXT = "nothing", "patterns and scales of another text"
SHARE, MOVEMENT = "share", "movement"
"""Measurements of the closed form's parts in the last states."""
INPUT, TERMS, BIAS = "input", "terms", "bias"
"""The parts of the closed form."""


def _terms(model: Transformer, x: Array) -> tuple[Seen, Seen]:
    return terms_of(model.output, model.hidden, x)


def _loss(model: Transformer, x: Array, ids: Array, values: Seen) -> Array:
    """Return the mean loss of a text with some parameters replaced."""
    logs = jax.nn.log_softmax(run_with(model.output, x, values)[:-1])
    return -jnp.take_along_axis(logs, ids[1:, None], -1).mean()


@jax.jit
def moving(
    model: Transformer, ids: Int[Array, "texts tokens"], others: Int[Array, "texts tokens"]
) -> tuple[dict[str, list[Float[Array, ""]]], dict[str, Float[Array, ""]]]:
    """Return how far parameters move, and the loss with each group of them frozen, the model run again."""
    # They are frozen at their means over other texts; once also at those of one other text. For biases each
    # pre-activation is set to `W'_{j,2} x_0 + mean(b'_{j,2})`, all else is made anew.
    x, y = (jax.vmap(model.embed)(texts) for texts in (ids, others))
    held = jax.lax.map(partial(held_values, model.output), y)
    _, biases = jax.lax.map(partial(_terms, model), y)
    pre_activations, own = jax.lax.map(partial(_terms, model), x)
    groups = {
        PATTERNS: {site: value for site, value in held.items() if is_pattern(site)},
        SCALES: {site: value for site, value in held.items() if not is_pattern(site)},
        BIASES: biases,
    }
    movement = {group: [movement_of(value) for value in values.values()] for group, values in groups.items()}
    means = {group: jax.tree.map(lambda value: value.mean(0), groups[group]) for group in (PATTERNS, SCALES)}
    means |= {NOTHING: {}, WEIGHTS: means[PATTERNS] | means[SCALES]}

    def loss_of(values: Seen) -> Array:
        return jax.lax.map(lambda given: _loss(model, given[0], given[1], values), (x, ids)).mean()

    losses = {group: loss_of(mean) for group, mean in means.items()}
    each = jax.tree.map(lambda z, b, other: z - b + other.mean(0), pre_activations, own, biases)
    for group, values in ((OTHER_TEXT, held), (BIASES, each)):
        losses[group] = jax.lax.map(lambda given: _loss(model, *given), (x, ids, values)).mean()
    return movement, losses


@jax.jit
def parts_of_states(model: Transformer, ids: Int[Array, "texts tokens"]) -> dict[str, dict[str, Float[Array, "..."]]]:
    """Return how much of the last states each part of the closed form is (Eq. 11), and how far it moves over texts."""
    # `x_N = P x_0 + Σ_j C_j σ(B_j x_0 + c_j) + q`. Of a token with the state `x_N` the part `p` has the share `⟨p, x_N⟩
    # / ‖x_N‖²`; the means over tokens and texts sum to one.

    def of_text(x: Float[Array, "tokens features"]) -> tuple[Array, dict[str, Array]]:
        form = unroll(model.hidden, x)
        parts = {INPUT: form.input_map()(x), TERMS: jnp.stack(form.term_contributions()), BIAS: form.bias()}
        return form.value, parts

    states, parts = jax.lax.map(of_text, jax.vmap(model.embed)(ids))
    direction = states / (states**2).sum(-1, keepdims=True) / states[..., 0].size
    one_by_one = {kind: jnp.moveaxis(of, 1, 0) if kind == TERMS else of[None] for kind, of in parts.items()}
    shares = {kind: (of * direction).sum((1, 2, 3)) for kind, of in one_by_one.items()}
    return {SHARE: shares, MOVEMENT: {kind: jax.vmap(movement_of)(of) for kind, of in one_by_one.items()}}


@jax.jit
def attention_to_copies(model: Transformer, ids: Int[Array, "texts tokens"]) -> Float[Array, "layers heads"]:
    """Return how much every head attends, from a token that stood in the text before, to the token after it there."""
    length = ids.shape[1] // 2
    places = jnp.arange(length, 2 * length - 1)

    def of_text(ids: Array) -> Array:
        held = held_values(model.output, model.embed(ids))
        patterns = jnp.stack([value for site, value in held.items() if is_pattern(site)])
        return patterns[..., places, places - length + 1].mean(-1)

    return jax.lax.map(of_text, ids).mean(0)
