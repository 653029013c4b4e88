"""The page of a contrast."""

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
from duat_jax.interpret.contrast.table import LESS, NOTE, both_sides, layer_of, other_labels
from duat_jax.transform.keys import Marked


def _of_layer(parts: Marked, label: str) -> Units | None:
    """Return the units of the layer with a label; `None` if it has none, or several kinds of them."""
    found = [part for key, part in parts.items() if layer_of(key) == label]
    return largest_units(found[0]) if len(found) == 1 else None


def view(contrast: Contrast) -> View:
    """Return what the page of a contrast shows.

    Args:
        contrast: the result.
    """
    layers = {layer_of(key): key.layer for key in (*contrast.heads, *contrast.neurons)}
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
