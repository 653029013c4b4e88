"""The movement of the closed form's parameters with the text, what freezing them costs, and what heads attend to."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.models.transformer import Transformer
from duat_jax.transform.interpret import Seen
from experiments.frozen_parameters import held_values, is_pattern, run_with, terms_of
from experiments.frozen_parameters import movement as movement_of

PATTERNS, SCALES, WEIGHTS, BIASES = "patterns", "scales", "patterns and scales", "biases"
"""The groups of parameters: attention patterns, norms' scales, both, and the biases of the terms."""
NOTHING, OTHER_TEXT = "nothing", "patterns and scales of another text"


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
    """Return how far parameters move, and the loss with each group of them frozen, the model run again.

    They are frozen at their means over other texts; once also at those of one other text. For biases each
    pre-activation is set to `W'_{j,2} x_0 + mean(b'_{j,2})`, all else is made anew.

    Args:
        model: the model.
        ids: texts that are read, of one length.
        others: texts over which means are taken, of the same length and number.

    Returns:
        The movement of every attention pattern, norm's scale and term's bias over the other texts, by group; and the
        mean losses by group, that of nothing frozen by the name `NOTHING`.
    """
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
def attention_to_copies(model: Transformer, ids: Int[Array, "texts tokens"]) -> Float[Array, "layers heads"]:
    """Return how much every head attends, from a token that stands in the text before, to the token after that place.

    Args:
        model: the model.
        ids: texts whose second half is their first one.
    """
    length = ids.shape[1] // 2
    places = jnp.arange(length, 2 * length - 1)

    def of_text(ids: Array) -> Array:
        held = held_values(model.output, model.embed(ids))
        patterns = jnp.stack([value for site, value in held.items() if is_pattern(site)])
        return patterns[..., places, places - length + 1].mean(-1)

    return jax.lax.map(of_text, ids).mean(0)
