"""The movement of the closed form's parameters with the text, what freezing them costs, and what heads attend to."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.forms.closed_form import unroll
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.interpret import Seen
from duat_jax.transform.recording import record_kinds

PATTERN = "attention.pattern"
PATTERNS, SCALES, WEIGHTS, BIASES = "patterns", "scales", "patterns and scales", "biases"
"""The groups of parameters: attention patterns, norms' scales, both, and the biases of the terms."""
NOTHING, OTHER_TEXT = "nothing", "patterns and scales of another text"


def _held(model: Transformer, x: Array) -> Seen:
    recording = record_kinds(model.output, x, (marks.HOLD,))
    return {site: recording.seen[site] for site in recording.program.of_kind(marks.HOLD)}


def _terms(model: Transformer, x: Array) -> tuple[Seen, Seen]:
    """Return the pre-activation and the bias `b'_{j,2}` of every term."""
    recording = record_kinds(model.output, x, (marks.PRE_ACTIVATION,))
    sites = recording.program.of_kind(marks.PRE_ACTIVATION)
    form = unroll(model.hidden, x)
    biases = {site: form.inner_bias(j).reshape(recording.seen[site].shape) for j, site in enumerate(sites, 1)}
    return {site: recording.seen[site] for site in sites}, biases


def _losses(logits: Float[Array, "tokens outputs"], ids: Int[Array, "tokens"]) -> Float[Array, "predicted"]:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits[:-1]), ids[1:, None], -1)[:, 0]


def _rerun(model: Transformer, x: Array, ids: Array, values: Seen) -> Array:
    edits = {site: Edit(kept=0, added=value) for site, value in values.items()}
    return _losses(edit(model.output, edits)(x), ids).mean()


def _movement(values: Float[Array, "texts ..."]) -> Array:
    """Return `√(Σ ‖A − mean A‖² / Σ ‖A‖²)`, from 0 to 1."""
    return jnp.sqrt(
        ((values - values.mean(0)) ** 2).sum() / jnp.maximum((values**2).sum(), jnp.finfo(values.dtype).tiny)
    )


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
    held = jax.lax.map(partial(_held, model), y)
    _, biases = jax.lax.map(partial(_terms, model), y)
    pre_activations, own = jax.lax.map(partial(_terms, model), x)
    groups = {
        PATTERNS: {site: value for site, value in held.items() if PATTERN in str(site)},
        SCALES: {site: value for site, value in held.items() if PATTERN not in str(site)},
        BIASES: biases,
    }
    movement = {group: [_movement(value) for value in values.values()] for group, values in groups.items()}
    means = {group: jax.tree.map(lambda value: value.mean(0), groups[group]) for group in (PATTERNS, SCALES)}
    means |= {NOTHING: {}, WEIGHTS: means[PATTERNS] | means[SCALES]}

    def loss_of(values: Seen) -> Array:
        return jax.lax.map(lambda given: _rerun(model, given[0], given[1], values), (x, ids)).mean()

    losses = {group: loss_of(mean) for group, mean in means.items()}
    each = jax.tree.map(lambda z, b, other: z - b + other.mean(0), pre_activations, own, biases)
    for group, values in ((OTHER_TEXT, held), (BIASES, each)):
        losses[group] = jax.lax.map(lambda given: _rerun(model, *given), (x, ids, values)).mean()
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
        held = _held(model, model.embed(ids))
        patterns = jnp.stack([value for site, value in held.items() if PATTERN in str(site)])
        return patterns[..., places, places - length + 1].mean(-1)

    return jax.lax.map(of_text, ids).mean(0)


def rounded(tree: Any, digits: int = 6) -> Any:
    """Return numbers with so many significant digits, as plain data.

    Args:
        tree: arrays and numbers.
        digits: how many.
    """
    return jax.tree.map(
        lambda leaf: np.vectorize(lambda number: float(f"{number:.{digits - 1}e}"), otypes=[float])(leaf).tolist(), tree
    )
