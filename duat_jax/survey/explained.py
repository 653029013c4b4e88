"""The explained number of a text, and its parts: contributions at the text, or a secant from a baseline."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from duat_jax.forms import decomposition
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import secant
from duat_jax.inputs.baselines import Reference
from duat_jax.interpret.pipeline import embedded
from duat_jax.models.sites import HEADS, NEURONS
from duat_jax.models.transformer import Transformer
from duat_jax.transform import marks
from duat_jax.transform.marks import hold
from duat_jax.transform.recording import record_kinds


class Explained(NamedTuple):
    """The number that is explained at every place of a text but the last.

    Args:
        target: the token whose logit it is; the one that stands next if absent.
        contrast: the token whose logit is subtracted; if absent, none from a given target's, and that of the most
            probable other token from the next one's.
    """

    target: int | None = None
    contrast: int | None = None

    @property
    def name(self) -> str:
        """Its name in tables."""
        return "margin" if self.target is None else "logit" if self.contrast is None else "logit difference"


MARGIN = Explained()
"""The logit of the token that stands next, minus that of the most probable other one."""

BLOCK = 512
"""The largest number of tokens among which the most probable one is looked for at once."""


def number(
    model: Transformer,
    explained: Explained,
    ids: Int[Array, "tokens"],
    other: Int[Array, "places"] | None,
    x: Float[Array, "tokens features"],
) -> Float[Array, ""]:
    """Return the sum over a text's places of the explained number."""
    states, expected = model.states(x)[:-1], ids[1:]
    if explained.target is not None:
        wanted = jnp.full_like(expected, explained.target)
        other = None if explained.contrast is None else jnp.full_like(expected, explained.contrast)
    else:
        wanted = expected
        if other is None:
            logits = jax.vmap(lambda state: model.logits_at(state).values)(states)
            other = hold(runner_up(logits, expected), "runner-up")
    if other is None:
        return model.logits_of(states, wanted).sum()
    first, second = model.logits_of(states, jnp.stack([wanted, other]))
    return (first - second).sum()  # in this order: sums of logits are rounded much more


def runner_up(logits: Float[Array, "places vocab"], expected: Int[Array, "places"]) -> Int[Array, "places"]:
    """Return of each place the most probable token that isn't the expected one; of several the first."""
    vocab = logits.shape[-1]
    without_expected = jnp.where(jnp.arange(vocab, dtype=expected.dtype) == expected[:, None], -jnp.inf, logits)
    # On a CPU XLA makes vector instructions of a maximum, and none of `argmax`, which is left the best block alone.
    size = next(size for size in range(min(BLOCK, vocab), 0, -1) if vocab % size == 0)
    blocks = without_expected.reshape(len(without_expected), -1, size)
    best = blocks.max(-1).argmax(-1)
    within = jnp.take_along_axis(blocks, best[:, None, None], 1)[:, 0].argmax(-1)
    return (best * size + within).astype(expected.dtype)


class TextParts(NamedTuple):
    """The parts of one text's number, or of its difference from a baseline.

    Args:
        units: of every layer's neurons and heads, by name, their parts and their activations, `[predicted, units]`.
        sums: the number, and its other parts, by name.
        error: that of the parts' sum, as a part of its tolerance.
    """

    units: dict[str, tuple[Array, Array]]
    sums: dict[str, Array]
    error: Float[Array, ""]


def contributions(model: Transformer, explained: Explained, ids: Int[Array, "tokens"]) -> TextParts:
    """Return the contributions to a text's number."""
    kinds = (*decomposition.KINDS, marks.POINT)
    recording = record_kinds(partial(number, model, explained, ids, None), model.embed(ids), kinds)
    table = decomposition.contributions(recording)
    sites = [site for site in recording.program.of_kind(marks.POINT) if site.key.name == HEADS]
    of_heads, values = coefficients(recording, sites), recording.seen
    activations = recording.dynamics.activations
    neurons = {
        f"{key}/neurons": (table.coefficients[key] * activations[key], activations[key]) for key in table.coefficients
    }
    heads = {
        f"{site.key}/heads": ((of_heads[site] * values[site]).sum(-1), jnp.linalg.norm(values[site], axis=-1))
        for site in sites
    }
    sums = {explained.name: recording.value, "embedding": table.input.sum()}
    sums |= {f"{key}": part.sum() for key, part in table.offsets.items()}
    return _parts(neurons | heads, sums, table.completeness)


def secants(model: Transformer, explained: Explained, ids: Int[Array, "tokens"], baseline: Reference) -> TextParts:
    """Return the parts of the difference of a number between a text and its baseline."""
    x = model.embed(ids)
    recording = record_kinds(model.output, x, (marks.ACTIVATION, marks.POINT))
    number_of = partial(number, model, explained, ids, runner_up(recording.value[:-1], ids[1:]))
    split = secant(number_of, at=marks.POINT)(x, embedded(model, baseline))
    activations, points = recording.dynamics.activations, recording.dynamics.points
    by_point = split.contributions.points
    neurons = {
        f"{term}/neurons": (by_point[term._replace(name=NEURONS)], values) for term, values in activations.items()
    }
    heads = {
        f"{key}/heads": (part.sum(-1), jnp.linalg.norm(points[key], axis=-1))
        for key, part in by_point.items()
        if key.name == HEADS
    }
    sums = {explained.name: split.difference, "embedding": split.parts.sum()}
    return _parts(neurons | heads, sums, split.completeness)


def _parts(units: dict[str, tuple[Array, Array]], sums: dict[str, Array], completeness: Completeness) -> TextParts:
    """Return the parts of a text without those of its last token, which says nothing of the others."""
    error = jnp.abs(completeness.error) / completeness.tolerance
    return TextParts(jax.tree.map(lambda part: part[:-1], units), sums, error)
