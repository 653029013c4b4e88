"""Activation patching: what a contrast with another text says of setting values to those that they have there."""

from collections.abc import Sequence
from dataclasses import replace

from duat_jax.interpret.contrast.result import Contrast
from duat_jax.interpret.intervene.changes import Applied
from duat_jax.interpret.intervene.result import Intervention
from duat_jax.interpret.intervene.sources import FromInput


def beside_contrast(found: Intervention, contrast: Contrast, changes: Sequence[Applied]) -> Intervention:
    """Return an intervention in which changes to the values on another text have their parts of a contrast with it."""
    effects = zip(found.effects, parts_of(contrast, changes), changes, strict=True)
    patched = [
        each._replace(contrast=part) if isinstance(change.source, FromInput) else each for each, part, change in effects
    ]
    return replace(found, effects=tuple(patched))


def parts_of(contrast: Contrast, changes: Sequence[Applied]) -> list[float]:
    """Return minus the parts of a contrast in the places of changes: what setting them to the other text's would do."""

    def part(change: Applied) -> float:
        if change.units is None:
            key = change.site.key
            row = key.number if key.layer is None else key.layer + 1
            return -float(contrast.flow[row][list(change.tokens)].sum())
        parts = contrast.heads if change.site.key in contrast.heads else contrast.neurons
        return -float(parts[change.site.key][change.chosen].sum())

    return list(map(part, changes))
