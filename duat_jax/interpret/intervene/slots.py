"""Slots of changes: arrays of fixed shapes, so that one compiled program serves changes in every layer."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.inputs.batching import power_of_two
from duat_jax.interpret.intervene.changes import Applied
from duat_jax.models.config import Config
from duat_jax.models.layout import UnitLayout
from duat_jax.models.units import heads_of, neurons_of, streams_of
from duat_jax.transform.editing import Edit
from duat_jax.transform.keys import Site

LEAST = 4
"""The least number of slots."""

Edits = dict[Site, Edit]


class Alike(NamedTuple):
    """Marks of one name whose values lie alike.

    Args:
        sites: the marks, layer by layer.
        units: how they lie, of the first of them.
    """

    sites: tuple[Site, ...]
    units: UnitLayout

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the values of one token."""
        return self.units.shape


class Slots(NamedTuple):
    """Changes of marks that are alike, `m ↦ kept · m + added`, those of one mark in each slot.

    Args:
        marks: the number of each one's mark, `[slots]`; -1 of an empty slot.
        edits: the changes, arrays of `[slots, tokens, *shape]`.
    """

    marks: Int[Any, "slots"]
    edits: Edit


def marks_alike(config: Config, layers: int, changes: Iterable[Applied]) -> tuple[Alike, ...]:
    """Return the marks of every layer that are like those of some changes."""
    changed = {change.site for change in changes}
    every = [units for layer in range(layers) for units in (*heads_of(config, layer), *neurons_of(config, layer))]
    every += [units for number in range(layers + 1) for units in streams_of(config, number)]
    found: dict[tuple[Any, ...], list[UnitLayout]] = {}
    for units in every:
        found.setdefault((units.site.kind, units.site.key.name, units.axis, units.others), []).append(units)
    alike = (Alike(tuple(units.site for units in of_kind), of_kind[0]) for of_kind in found.values())
    return tuple(each for each in alike if changed.intersection(each.sites))


def slots_of(
    alike: tuple[Alike, ...], changes: Iterable[Applied], chosen: Iterable[Applied], tokens: int
) -> tuple[Slots, ...]:
    """Return chosen changes in slots for the marks of all changes."""
    of_marks: dict[Site, list[Applied]] = {change.site: [] for change in changes}
    for change in chosen:
        of_marks[change.site].append(change)
    return tuple(
        _slots(each, {site: found for site, found in of_marks.items() if site in each.sites}, tokens) for each in alike
    )


def _slots(alike: Alike, changes: dict[Site, list[Applied]], tokens: int) -> Slots:
    count = power_of_two(max(LEAST, len(changes)))
    shape = (count, tokens, *alike.shape)
    marks, kept, added = np.full(count, -1, np.int32), np.ones(shape), np.zeros(shape)
    for slot, (site, of_mark) in enumerate(changes.items()):
        marks[slot] = alike.sites.index(site)
        for change in of_mark:
            place = slot, slice(len(change.here))
            kept[place] = np.where(change.here, change.kept, kept[place])
            added[place] = np.where(change.here, change.added, added[place])
    return Slots(marks, Edit(kept, added))


def edits_of(alike: tuple[Alike, ...], slots: tuple[Slots, ...]) -> Edits:
    """Return the edit of every mark: that of its slot, or none."""
    edits: Edits = {}
    for each, (marks, (kept, added)) in zip(alike, slots, strict=True):
        for number, site in enumerate(each.sites):
            here = (marks == number).reshape(-1, *[1] * (kept.ndim - 1)).astype(kept.dtype)
            # Sums of products with 0 and 1, which are exact on every device.
            whole = (here * kept).sum(0) + (1 - here.sum()), (here * added).sum(0)
            edits[site] = Edit(*map(each.units.as_they_lie, whole))
    return edits


def at_slots(alike: Alike, slots: Slots, values: dict[Site, Array]) -> Float[Array, "slots tokens *shape"]:
    """Return the values of each slot's mark."""
    return jnp.stack([alike.units.by_token(values[site]) for site in alike.sites])[slots.marks]
