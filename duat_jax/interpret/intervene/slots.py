"""Slots of edits: arrays of fixed shapes, so that one compiled program serves edits in every layer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from duat_jax.inputs.batching import power_of_two
from duat_jax.interpret.intervene.places import Selected
from duat_jax.models.config import Config
from duat_jax.models.layout import UnitLayout
from duat_jax.models.units import both_streams_of, heads_of, neurons_of
from duat_jax.transform.editing import Edit
from duat_jax.transform.keys import Site
from duat_jax.transform.stored_program import numbers_as_data

LEAST = 4
"""The least number of slots."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Slots:
    """Slots for edits of marks of one name whose values lie alike, one mark in each slot.

    Args:
        sites: the marks of every layer.
        units: how their values lie, of the first of them.
        numbers: which of the marks each slot is for; -1 of an empty slot.
        counted: the numbers of the marks, as data.
    """

    sites: tuple[Site, ...] = field(metadata={"static": True})
    units: UnitLayout = field(metadata={"static": True})
    numbers: Int[np.ndarray, "slots"] | Int[Array, "slots"]
    counted: tuple[Int[np.ndarray, ""] | Int[Array, ""], ...]

    def at_slots(self, values: dict[Site, Array], real: Shaped[Array, "tokens"]) -> Float[Array, "slots tokens *shape"]:
        """Return the values of each slot's mark, token by token."""
        return jnp.stack([self.units.by_token(values[site], real) for site in self.sites])[self.numbers]


def slots_of(config: Config, layers: int, places: Sequence[Selected]) -> tuple[Slots, ...]:
    """Return slots for the marks of some edits."""
    edited = dict.fromkeys(place.mark.site for place in places)
    every = [units for layer in range(layers) for units in (*heads_of(config, layer), *neurons_of(config, layer))]
    every += [units for number in range(layers + 1) for units in both_streams_of(config, number)]
    groups: dict[tuple[Any, ...], list[UnitLayout]] = {}
    for units in every:
        groups.setdefault((units.site.kind, units.site.key.name, *units[1:]), []).append(units)
    slots = []
    for group in groups.values():
        sites = tuple(units.site for units in group)
        if used := [sites.index(site) for site in edited if site in sites]:
            numbers = np.full(power_of_two(max(LEAST, len(used))), -1, np.int32)
            numbers[: len(used)] = used
            slots.append(Slots(sites, group[0], numbers, numbers_as_data(len(sites))))
    return tuple(slots)


def filled(slots: Sequence[Slots], edits: Iterable[Edit], tokens: int) -> list[Edit]:
    """Return edits in their slots, arrays of `[slots, tokens, *shape]`; every other value is kept."""
    shapes = [(len(each.numbers), tokens, *each.units.shape) for each in slots]
    arrays = [Edit(np.ones(shape), np.zeros(shape)) for shape in shapes]
    for kept, added, place in edits:
        kind, slot = slot_of(slots, place)
        arrays[kind].kept[slot][place.entries] = 1 if kept is None else kept
        arrays[kind].added[slot][place.entries] = 0 if added is None else added
    return arrays


def slot_of(slots: Sequence[Slots], place: Selected) -> tuple[int, int]:
    """Return which of the slots are for marks like that of an edit, and which one of them for its own."""
    site = place.mark.site
    (kind,) = (kind for kind, each in enumerate(slots) if site in each.sites)
    return kind, list(slots[kind].numbers).index(slots[kind].sites.index(site))


def at_marks(slots: Iterable[Slots], edits: Iterable[Edit], real: Shaped[Array, "tokens"]) -> dict[Site, Edit]:
    """Return the edit of every mark: that of its slot, or none."""
    of_marks: dict[Site, Edit] = {}
    for each, (kept, added, _) in zip(slots, edits, strict=True):
        for number, site in zip(each.counted, each.sites, strict=True):
            here = (each.numbers == number).reshape(-1, *[1] * (kept.ndim - 1)).astype(kept.dtype)
            # Sums of products with 0 and 1, which are exact on every device.
            whole = (here * kept).sum(0) + (1 - here.sum()), (here * added).sum(0)
            of_marks[site] = Edit(*(each.units.as_they_lie(values, real) for values in whole))
    return of_marks
