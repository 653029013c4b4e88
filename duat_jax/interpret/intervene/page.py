"""The page of an intervention."""

import numpy as np
from jaxtyping import Float

from duat_jax.display.page.view import (
    Colouring,
    EffectView,
    Row,
    Units,
    UnitsKind,
    View,
    completeness_of,
    largest_units,
    line_ends,
    named,
    numbers,
    output_of,
    said,
)
from duat_jax.display.tables import token_label
from duat_jax.interpret.intervene.result import Effect, Intervention

EXACT = (
    "Exact for this pair of runs, with the changes and without: the parts of all changes sum to the difference. Other"
    " changes have other parts."
)


def _at_tokens(effect: Effect, parts: Float[np.ndarray, "changed *units"], tokens: int) -> np.ndarray:
    """Return the parts of a change at every token of the text, zero where nothing is changed."""
    found = np.zeros((tokens, *parts.shape[1:]), parts.dtype)
    found[list(effect.tokens)] = parts
    return found


def _units(effect: Effect, tokens: int) -> Units | None:
    if effect.units is None:
        return None
    secant, frozen = (_at_tokens(effect, parts, tokens) for parts in (effect.secant, effect.frozen))
    units = largest_units(secant, frozen)
    # The largest ones are places among the changed units.
    top = [[[effect.units[int(place)], *parts] for place, *parts in entries] for entries in units.top]
    return Units(top, units.rest)


def view(found: Intervention) -> View:
    """Return what the page of an intervention shows.

    Args:
        found: the result.
    """
    tokens = len(found.tokens)
    rows = []
    for effect in found.effects:
        secant = _at_tokens(effect, effect.secant, tokens)
        rows.append(
            Row(effect.change, numbers(secant if secant.ndim == 1 else secant.sum(-1)), [_units(effect, tokens)])
        )
    sums = np.sum([row.parts for row in rows], axis=0)
    effects = [
        EffectView(each.change, float(each.frozen.sum()), float(each.secant.sum()), each.alone, each.contrast)
        for each in found.effects
    ]
    return View(
        kind="intervention",
        target=f"the change of the {found.target}",
        output=output_of(found.target),
        exact=EXACT,
        value_name="difference",
        completeness=completeness_of(found.completeness),
        said=[
            said("as it is", found.before, found.predictions),
            said("with the changes", found.after, found.changed_predictions),
        ],
        tokens=[token_label(token) for token in found.tokens],
        others=None,
        line_ends=line_ends(found.tokens),
        colourings=[
            Colouring(
                "parts of the changes",
                "How much of the difference comes from what was changed at each token.",
                numbers(sums),
            )
        ],
        rows=rows,
        row_sums=False,
        beside="",
        kinds=[
            UnitsKind("unit", ["part", "predicted"], "The changed neurons or heads; together they are the cell.", "")
        ],
        added=named("Discontinuities: what has no slope between the two", found.discontinuities.items()),
        notes=list(found.notes),
        heading="Every change at every token",
        effects=effects,
    )
