"""Activation patching: edits to the values on another text, beside what a contrast with it says of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from duat_jax.interpret.contrast.compute import contrast
from duat_jax.interpret.contrast.result import Contrast
from duat_jax.interpret.intervene.compute import check, intervene
from duat_jax.interpret.intervene.places import Selected
from duat_jax.interpret.intervene.result import Intervention
from duat_jax.interpret.intervene.sources import FromInput
from duat_jax.marking.streams import layer_before
from duat_jax.models.transformer import Transformer
from duat_jax.transform.editing import Edit


def intervene_beside_contrast(
    model: Transformer,
    inputs: Any,
    edits: Sequence[Edit],
    reference: Any,
    *,
    step: Callable[[str], Any] = lambda name: None,
    **question: Any,
) -> Intervention:
    """Intervene; edits to the values on a reference have minus their parts of the contrast with it beside them."""
    step("running the model with the edits")
    result = intervene(model, inputs, list(edits), **question)
    if not any(map(is_patch, edits)):
        return result
    step("contrasting")
    split = contrast(model, inputs, reference, **question)
    *_, checked = check(model, inputs, list(edits), **question)
    effects = [
        effect._replace(contrast=-part_of(split, edit.place)) if is_patch(edit) else effect
        for effect, edit in zip(result.effects, checked, strict=True)
    ]
    return replace(result, effects=tuple(effects))


def is_patch(edit: Edit) -> bool:
    """Return whether an edit sets values to those on another text."""
    return isinstance(edit.added, FromInput)


def from_reference(edits: Sequence[Edit], reference: Any) -> list[Edit]:
    """Return edits, those to the values on another text with the reference in its place."""
    return [edit._replace(added=FromInput(reference)) if is_patch(edit) else edit for edit in edits]


def part_of(contrast: Contrast, selection: Selected) -> float:
    """Return the part of a contrast that some values of the text have."""
    key = selection.mark.site.key
    if selection.units is None:
        row = contrast.layers.index(layer_before(key.number, key))
        return float(contrast.flow[row][list(selection.tokens)].sum())
    parts = contrast.heads if key in contrast.heads else contrast.neurons
    return float(parts[key][selection.entries].sum())
