"""The layouts of units at the marks of a model that PyTorch's code computes, found by texts of two lengths."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.marking.patterns import held_factor
from duat_jax.marking.program import MIXED
from duat_jax.marking.streams import CARRIED, STREAM
from duat_jax.models.config import Image, ImageBesideText
from duat_jax.models.converted_stack import ConvertedStack
from duat_jax.models.layout import DECODER, ENCODER, UnitLayout, pattern_at, units_at
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Site
from duat_jax.transform.program import Program, trace

Shape = tuple[int, ...]

EMBEDDING = Site(marks.STREAM, Key((), "layer", 0))
"""The mark of the first stream, which has the tokens of all texts."""


def layouts_of_texts(
    stack: ConvertedStack, x: Float[Array, "tokens features"], real: Int[np.ndarray, "tokens"]
) -> tuple[UnitLayout, ...]:
    """Return how units lie at every mark with one axis of tokens, of one text or of two."""
    streams = {int(each): x[real == each] for each in np.unique(real)}
    shorter = {each: rows[1:] for each, rows in streams.items()}
    ones = [{each: jnp.ones(len(rows), bool) for each, rows in texts.items()} for texts in (streams, shorter)]
    programs = [trace(stack.marked(mask), texts)[0] for mask, texts in zip(ones, (streams, shorter), strict=True)]

    def axes_of_tokens(site: Site) -> dict[int, int]:
        """Return each axis of tokens of a mark's array, with the number of the stream."""
        first, second = (program.place(site).shape for program in programs)
        return {
            axis: each if len(streams) > 1 else 0
            for axis, sizes in enumerate(zip(first, second, strict=False))
            for each, rows in streams.items()
            if sizes == (len(rows), len(rows) - 1)
        }

    layouts = [units_at(EMBEDDING, x.shape, 0, 0)]
    for site, shape, _ in _with_two_shapes(*programs):
        axes = axes_of_tokens(site)
        if len(axes) != 1:
            continue
        units = units_at(site, shape, *next(iter(axes.items())))
        factor = held_factor(programs[0], site) if site.key.name == MIXED else None
        if factor is not None and factor.site in programs[1].places:
            sizes = programs[0].place(factor.site).shape
            units = units._replace(pattern=pattern_at(units, factor, sizes, axes_of_tokens(factor.site)))
        layouts.append(units)
    return tuple(layouts)


def layouts_beside_image(
    stack: ConvertedStack,
    beside: ImageBesideText,
    patches: Float[Array, "patches entries"],
    text: Float[Array, "tokens features"],
    numbers: Int[np.ndarray, "tokens"],
) -> tuple[UnitLayout, ...]:
    """Return how units lie at every mark of an image and its text."""
    programs = [
        trace(stack.marked({DECODER: jnp.asarray(numbers[k:])}), {ENCODER: patches, DECODER: text[k:]})[0]
        for k in (0, 1)
    ]
    both, joint = list(_with_two_shapes(*programs)), beside.tokens + len(text)
    layouts = [units_at(EMBEDDING, (joint, max(patches.shape[-1], text.shape[-1])), 0, 0)]
    for site, first, second in both:
        axes = [axis for axis, sizes in enumerate(zip(first, second, strict=False)) if sizes[0] == sizes[1] + 1]
        if len(axes) == 1:
            layouts.append(units_at(site, first, axes[0], DECODER, (beside.tokens, None)))
    alike = [(site, first) for site, first, second in both if first == second]
    return (*layouts, *_in_image(beside.image, alike))


def layouts_of_image(
    stack: ConvertedStack, image: Image, patches: Float[Array, "patches entries"]
) -> tuple[UnitLayout, ...]:
    """Return how units lie at every mark of an image alone."""
    program = trace(stack.marked({}), {ENCODER: patches})[0]
    sites = [(site, shape) for site, shape, _ in _with_two_shapes(program, program)]
    return (units_at(EMBEDDING, (image.tokens, patches.shape[-1]), 0, 0), *_in_image(image, sites))


def _in_image(image: Image, sites: Sequence[tuple[Site, Shape]]) -> Iterator[UnitLayout]:
    """Yield how units lie at the marks of an image's layers, whose number of tokens doesn't vary."""
    count, end = image.patches, image.tokens
    is_row = {site: site.kind == marks.STREAM or site.key.name in (STREAM, CARRIED) for site, _ in sites}
    sizes = (shape[-2] for site, shape in sites if is_row[site] and site.key.name != CARRIED)
    tower = next((size for size in sizes if size >= count), count)
    spans = {1: (0, 1), count: (end - count, end), tower: (end - tower, end)}
    for site, shape in sites:
        axes = [len(shape) - 2] if is_row[site] else [axis for axis, size in enumerate(shape[:-1]) if size == tower]
        if len(axes) == 1 and shape[axes[0]] in spans:
            span = (0, 1) if len(shape) == 2 and shape[0] == 1 else spans[shape[axes[0]]]
            yield units_at(site, shape, axes[0], ENCODER, span)


def _with_two_shapes(first: Program, second: Program) -> Iterator[tuple[Site, Shape, Shape]]:
    """Yield the marks that two programs have, outside of loops, and their shapes."""
    for site in first.of_kind(marks.STREAM, marks.POINT, marks.ACTIVATION):
        if site in second.places and not first.place(site).loops:
            yield site, first.place(site).shape, second.place(site).shape
