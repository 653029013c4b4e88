"""Splits: the difference of a number between two points, as named parts that sum to it.

The points are two inputs, the weights of two models, two masks of a model's units, or the weights before and after some
steps of a training. Whatever is asked, the secant between them has one part for every entry; a question gives names to
sums of these, and its `Split` says how well they sum.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import Secant, notes_of, secant
from duat_jax.processes import on_host


class Split(NamedTuple):
    """The difference of a number between two points, as named parts.

    Args:
        values: the number at both points.
        parts: its parts, by the names that the question gives them.
        discontinuities: the parts that have no slope, such as a router's choice, by primitive and source line.
        completeness: the sum of all parts of the secant against the difference.
        unrecognised: how far exponents moved in a softmax that isn't recognised, as in `duat.secant`.
    """

    values: tuple[Float[Array, "..."], Float[Array, "..."]]
    parts: Any
    discontinuities: dict[str, Any]
    completeness: Completeness
    unrecognised: dict[str, Any]

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the parts: a sentence for each `unrecognised` softmax."""
        return notes_of(self.unrecognised)

    def certified(self, difference: Any, model: Any, recompute: Callable[[Any], Float[Array, ""]]) -> "Split":
        """Return the same on the host, its completeness against the difference of the plain runs."""
        split: Split = on_host(self)
        return split._replace(
            discontinuities={name: float(part) for name, part in split.discontinuities.items()},
            completeness=split.completeness.against(difference).certified(model, recompute),
        )


def split_between(
    number: Callable[[Any], Float[Array, ""]],
    parts_of: Callable[[Secant], Any],
    *,
    at: str | Iterable[str] = (),
    held: bool | str | Iterable[str] = (),
) -> Callable[[Any, Any], Split]:
    """Transform a number into the function that splits its difference between two points over named parts.

    Example:
        >>> area = lambda sides: sides["width"] * sides["height"]
        >>> square, strip = {"width": 2.0, "height": 2.0}, {"width": 1.0, "height": 6.0}
        >>> split = split_between(area, lambda secant: secant.parts)(square, strip)
        >>> {name: float(part) for name, part in split.parts.items()}, split.completeness.verdict
        ({'height': -6.0, 'width': 4.0}, 'holds')
    """

    def split(x: Any, y: Any) -> Split:
        difference = secant(number, at=at, held=held)(x, y)
        return Split(
            difference.values,
            parts_of(difference),
            difference.discontinuities,
            difference.completeness,
            difference.unrecognised,
        )

    return split


def first_order(number: Callable[[Any], Float[Array, ""]], x: Any, y: Any) -> Any:
    """Return the parts to first order, entry by entry: the gradient at `y` times `x − y`."""
    return jax.tree.map(lambda slope, to, start: slope * jnp.subtract(to, start), jax.grad(number)(y), x, y)
