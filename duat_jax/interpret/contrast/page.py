"""The page of a contrast."""

from collections import Counter

import numpy as np

from duat_jax.display.page.view import (
    Colouring,
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
from duat_jax.display.tables import DIFFERENCE, token_label
from duat_jax.interpret.contrast.result import Contrast
from duat_jax.interpret.contrast.table import LESS, NOTE, both_sides, other_labels
from duat_jax.transform.keys import Marked


def _of_layer(parts: Marked, label: str) -> Units | None:
    """Return the units of the layer with a label, those of several choices or runs one after the other.

    `None` if the layer has none, or several kinds of them.
    """
    found = {key: part for key, part in parts.items() if f"layer {key.layer}" == label}
    alike = len({key._replace(number=0) for key in found}) == 1
    return largest_units(np.concatenate(list(found.values()), -1)) if alike else None


def view(contrast: Contrast) -> View:
    """Return what the page of a contrast shows.

    Args:
        contrast: the result.
    """
    marks_in = Counter((key.layer, kind) for kind in ("heads", "neurons") for key in getattr(contrast, kind))
    several = {layer for (layer, _), count in marks_in.items() if count > 1}
    layers = {f"layer {layer}": layer for layer, _ in marks_in if layer not in several}
    moved = {str(key): part for key, part in contrast.moved.items()}
    return View(
        kind="contrast",
        target=f"the difference of the {contrast.target}",
        output=output_of(contrast.target),
        exact=LESS if contrast.leaves_out else NOTE,
        value_name=DIFFERENCE,
        completeness=completeness_of(contrast.completeness),
        said=[said(*side) for side in both_sides(contrast)],
        tokens=[token_label(token) for token in contrast.tokens],
        others=other_labels(contrast) or None,
        line_ends=line_ends(contrast.tokens),
        colourings=[
            Colouring(
                "secant",
                "How much of the difference from the other input comes from each token's own change, through all"
                " layers.",
                numbers(contrast.flow[0]),
            )
        ],
        rows=[
            Row(
                label,
                numbers(parts),
                [_of_layer(contrast.heads, label), _of_layer(contrast.neurons, label)],
                layers.get(label),
            )
            for label, parts in zip(contrast.rows, contrast.flow, strict=True)
        ],
        row_sums=True,
        beside="moved or jumped later" if contrast.leaves_out else "",
        kinds=[
            UnitsKind(
                "head",
                ["part"],
                "What follows from what each head brings here on this text rather than on the other one; a head that is"
                " off and brings nothing is another question. They don't add up to the cell: what a head brings may"
                " flow on through the layer's neurons.",
                None,
            ),
            UnitsKind(
                "neuron",
                ["part"],
                "Parts of what each neuron of the layer adds here; with everything else that the stream has, they are"
                " the cell.",
                "everything else in the stream",
            ),
        ],
        added=[
            *named("Held at its midpoint, and moved", moved.items()),
            *named("Discontinuities: what has no slope between the two", contrast.discontinuities.items()),
        ],
        notes=list(contrast.notes),
    )
