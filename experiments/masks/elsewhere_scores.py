"""Scores of units on one prompt, over masks and between two texts, by the name of their method."""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.attribution.masks import Number, Scorer, integrated_gradients, parts_of_secant, scored_twice
from duat_jax.attribution.unit_values import KINDS, Read, mean_over_steps, sites_of, stacked
from duat_jax.attribution.unit_values import UnitValues as Entries
from duat_jax.attribution.units import _gradient
from duat_jax.evaluation.circuits import UnitKind, run_masked, values
from duat_jax.forms.secant import secant
from duat_jax.inputs.prompts import Prompt, logit_difference
from duat_jax.models.transformer import Transformer
from duat_jax.transform.program import trace
from duat_jax.transform.query import seen_of

OPTIMISED = "optimised on one prompt"
"""The setting whose circuits are optimised beside those by scores."""
Scores = Callable[[Transformer, Prompt, UnitKind, Array], Array]
"""From a model, a prompt, a kind of units and the values of those that aren't live to the score of each unit."""


def once(scorer: Scorer, number: Number, ones: Array) -> Array:
    """Return every entry's score between all live and none."""
    return scorer(number, ones, jnp.zeros_like(ones))


def twice(scorer: Scorer, number: Number, ones: Array) -> Array:
    """Return the scores of `once`, where all but the largest entries are scored again with these live."""
    return scored_twice(scorer, number, ones, jnp.ones(1, bool))


FIRST = "secant over masks, twice"
GRADIENTS = "integrated gradients over masks, 2 steps", "gradient at half masks, twice"
OVER_MASKS: dict[str, Callable[[Number, Array], Array]] = {
    FIRST: partial(twice, parts_of_secant),
    "secant over masks": partial(once, parts_of_secant),
    GRADIENTS[0]: partial(once, partial(integrated_gradients, steps=2)),
    GRADIENTS[1]: partial(twice, partial(integrated_gradients, steps=1)),
    "integrated gradients over masks, 5 steps": partial(once, partial(integrated_gradients, steps=5)),
}
"""From the number as a function of a mask, and a mask of ones, to the score of each of its entries, by method."""


def over_masks(method: str) -> Scores:
    """Return the scores by the logit difference as a function of the mask of all units."""

    def scores(model: Transformer, prompt: Prompt, kind: UnitKind, replaced: Array) -> Array:
        ones = jnp.ones_like(replaced if kind.unit == "neuron" else replaced[..., :1])
        return OVER_MASKS[method](lambda mask: run_masked(model, prompt, kind, mask, replaced), ones)

    return scores


def of_texts(coefficients: Callable[[Read, Array, Array], Entries]) -> Scores:
    """Return the scores `⟨C_u, h_u − c_u⟩`, with the coefficients `C` from runs on texts, and `c` the values given."""

    def scores(model: Transformer, prompt: Prompt, kind: UnitKind, replaced: Array) -> Array:
        read = partial(logit_difference, model, right=prompt.right, wrong=prompt.wrong)
        of_neurons, of_heads, _ = coefficients(read, model.embed(prompt.clean), model.embed(prompt.corrupted))
        change = values(model, prompt.clean, kind) - replaced
        return of_neurons * change if kind.unit == "neuron" else (of_heads * change).sum(-1, keepdims=True)

    return scores


def _multipliers(read: Read, x: Array, y: Array) -> Entries:
    return stacked(sites_of(trace(read, x)[0]), seen_of(secant(read, at=KINDS)(x, y).multipliers))


def _gradient_at_text(read: Read, x: Array, y: Array) -> Entries:
    return _gradient(read, x)[0]


def _mean_gradient(read: Read, x: Array, y: Array, *, steps: int) -> Entries:
    return mean_over_steps(steps, x.dtype, lambda t: _gradient(read, y + t * (x - y))[0])


METHODS: dict[str, Scores] = {
    **{name: over_masks(name) for name in (FIRST, *GRADIENTS)},
    "secant": of_texts(_multipliers),
    "gradient x change": of_texts(_gradient_at_text),
    "integrated gradients, 10 steps": of_texts(partial(_mean_gradient, steps=10)),
}
"""The scores of each method."""
