"""Attribution methods over masks: scores of units from runs in which other units are replaced too.

The number is a function of a mask `M` of all units of one kind: on the text's embeddings, every unit is set to
`c + M (h - c)`, where `c` is its value on the reference and `h` is computed anew from what precedes it.  `M = 1` is the
model on the text, and `M = 0` what is left when all units of the kind are replaced.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from duat_jax.attribution.method import INTEGRATED, SECANT, AttributionMethod
from duat_jax.attribution.unit_values import Read, Scores, mean_gradient, sites_of, values_of
from duat_jax.attribution.units import Rule
from duat_jax.forms.secant import secant
from duat_jax.models.transformer import Transformer
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Site
from duat_jax.transform.program import trace

Number = Callable[[Array], Array]
"""From the mask of all units of one kind to the number."""
Scorer = Callable[[Number, Array, Array], Array]
"""From the number and two masks to the score of each unit: its part in the number's difference between the two."""

FIRST = 0.005
"""The share of the units that `twice` keeps."""


def once(scorer: Scorer) -> Rule:
    """Return the rule that scores units by their part in the difference between the text and all units replaced."""
    # Neurons and heads are scored, each kind by itself. Streams are left out: behind a layer whose stream is replaced
    # nothing of earlier layers is left.
    return _over_masks(lambda number, ones, real: scorer(number, ones, jnp.zeros_like(ones)))


def twice(scorer: Scorer) -> Rule:
    """Return the rule of `once` where the largest units are kept, and all others are scored again with these live."""
    # The scores of the others are scaled where one is as large as one of the largest units', so that they rank below.
    return _over_masks(partial(scored_twice, scorer))


def scored_twice(
    scorer: Scorer, number: Number, ones: Float[Array, "*units"], real: Bool[Array, "tokens"]
) -> Float[Array, "*units"]:
    """Return the scores of units, where all but the largest are scored again with these live in both runs."""
    first = scorer(number, ones, jnp.zeros_like(ones))
    kept = largest(first, FIRST, real)
    smallest = jnp.abs(jnp.where(kept, first, jnp.inf)).min()
    return jnp.where(kept, first, scaled_below(scorer(number, ones, kept), smallest))


def scaled_below(scores: Float[Array, "..."], bound: Float[Array, ""]) -> Float[Array, "..."]:
    """Return scores with one factor, at most 1, so that all sizes are below a bound."""
    below = jnp.nextafter(bound, jnp.zeros_like(bound))
    factor = jnp.minimum(1, below / jnp.abs(scores).max())
    return jnp.clip(scores * factor, -below, below)


def _over_masks(scores: Callable[[Number, Array, Array], Array]) -> Rule:
    """Return the rule of scores of the number as a function of the mask, the mask of ones, and what is no padding."""

    def rule(model: Transformer, read: Read, x: Array, y: Any, real: Array) -> Scores:
        sites, replaced = sites_of(trace(read, x)[0]), values_of(read, y)

        def of_kind(at: tuple[Site, ...], values: Array, ones: Array) -> Array:
            def number(mask: Array) -> Array:
                edits = {
                    site: Edit(live, (1 - live) * value) for site, live, value in zip(at, mask, values, strict=True)
                }
                return edit(read, edits)(x)

            return scores(number, ones, real)

        neurons = of_kind(sites.neurons, replaced.neurons, jnp.ones_like(replaced.neurons))
        heads = of_kind(sites.heads, replaced.heads, jnp.ones_like(replaced.heads[..., :1]))
        return Scores(neurons, heads[..., 0], None)

    return rule


def largest(scores: Float[Array, "*units"], share: float, real: Bool[Array, "tokens"]) -> Float[Array, "*units"]:
    """Return the mask of the units whose scores are largest by size."""
    sizes = jnp.abs(scores)
    count = jnp.round(share * scores.size * real.mean()).astype(jnp.int32)
    return (sizes >= jnp.sort(sizes, axis=None)[-jnp.maximum(1, count)]).astype(scores.dtype)


def parts_of_secant(number: Number, live: Array, base: Array) -> Array:
    """Score units by the parts of the secant between two masks, which sum to the number's difference."""
    return secant(number)(live, base).parts


def integrated_gradients(number: Number, live: Array, base: Array, *, steps: int) -> Array:
    """Score units by the gradient's mean along the straight line between two masks, times the mask's change."""
    return (live - base) * mean_gradient(number, live, base, steps)


METHODS: dict[str, AttributionMethod[Rule]] = {
    "secant over masks": AttributionMethod(
        once(parts_of_secant), "`D`, the multiplier of the mask between the text and all units replaced", SECANT
    ),
    "secant over masks, twice": AttributionMethod(
        twice(parts_of_secant),
        f"the same, and for all but the largest {FIRST:.1%} of the units again with these kept in both runs",
        SECANT,
    ),
    "integrated gradients over masks, 10 steps": AttributionMethod(
        once(partial(integrated_gradients, steps=10)),
        "the mean of `∇` of the mask on the straight line from all units replaced to the text",
        INTEGRATED,
    ),
}
"""The methods that score neurons and heads, by name; they need a reference, and use the number itself."""
