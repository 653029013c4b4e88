"""Marks of a scan over layers: one for every layer to the outside, one with stacked values inside the scan."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from duat_jax.transform import marks
from duat_jax.transform.keys import Site
from duat_jax.transform.program import Program


def _mark_of(site: Site) -> Site:
    """Return the mark at which a value is provided."""
    return Site(marks.PROVIDED_AT.get(site.kind, site.kind), site.key)


def _by_stack(program: Program, sites: Iterable[Site]) -> tuple[list[Site], dict[Site, list[Site]]]:
    """Return marks outside of scans over layers, and the others by the one that stands for all layers."""
    single, stacks = list[Site](), defaultdict[Site, list[Site]](list)
    for site in sites:
        place = program.places.get(_mark_of(site))
        stack = None if place is None else program.sites[place.path]
        if stack in program.stacks:
            stacks[Site(site.kind, stack.key)].append(site)
        else:
            single.append(site)
    return single, stacks


def _of_every_layer(program: Program, stack: Site) -> list[Site]:
    return [Site(stack.kind, site.key) for site in program.stacks[_mark_of(stack)]]


def _in_part(program: Program, stack: Site, given: list[Site]) -> bool:
    """Return whether a mark is given in some layers only, where the others compute it."""
    return stack.kind in marks.KINDS and len(given) < len(program.stacks[stack])


def stacks_of(program: Program, sites: Iterable[Site]) -> frozenset[Site]:
    """Return marks with those of layers replaced by the one that stands for all of them."""
    single, stacks = _by_stack(program, sites)
    return frozenset((*single, *stacks))


def provided_inside(program: Program, sites: Iterable[Site]) -> dict[Site, Site]:
    """Return what stands inside a scan for each provided mark; one provided in some layers only is an edit in all."""
    single, stacks = _by_stack(program, sites)
    provided = {site: site for site in single}
    for stack, given in stacks.items():
        edited = Site(marks.ADDED[stack.kind], stack.key) if _in_part(program, stack, given) else stack
        provided |= dict.fromkeys(given, edited)
    return provided


def stacked(program: Program, values: Mapping[Site, jax.Array]) -> dict[Site, jax.Array]:
    """Stack the values that are provided at the marks of layers."""
    single, stacks = _by_stack(program, values)
    arrays, in_part = {site: values[site] for site in single}, dict[Site, tuple[jax.Array, jax.Array]]()
    for stack, given in stacks.items():
        axis, like, every = program.axis(_mark_of(stack)), values[given[0]], _of_every_layer(program, stack)
        unchanged = jnp.full_like(like, stack.kind in marks.KEPT.values())
        array = jnp.stack([values.get(site, unchanged) for site in every], axis)
        if _in_part(program, stack, given):
            in_part[stack] = array, jnp.stack([jnp.full_like(like, site not in given) for site in every], axis)
        else:
            arrays[stack] = array
    for stack, (array, computed) in in_part.items():
        kept, added = (Site(part[stack.kind], stack.key) for part in (marks.KEPT, marks.ADDED))
        arrays[added] = arrays.get(kept, 1) * array + arrays.get(added, 0)
        arrays[kept] = arrays.get(kept, 1) * computed
    return arrays


def apart(program: Program, values: Mapping[Site, Any]) -> dict[Site, Any]:
    """Return values with those of a scan over layers taken apart, one for every layer."""
    by_site = dict[Site, Any]()
    for site, value in values.items():
        if site in program.stacks:
            axis = program.axis(site)
            layers = enumerate(program.stacks[site])
            for layer, each in layers:
                by_site[each] = jax.tree.map(partial(lax.index_in_dim, index=layer, axis=axis, keepdims=False), value)
        else:
            by_site[site] = value
    return by_site
