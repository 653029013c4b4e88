"""Evaluate expressions with the sizes of what is added on the way to them, which bound the rounding of their values."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from symbolic.evaluation.interpreter import Arithmetic


class Sized(NamedTuple):
    """A matrix with the size of each of its entries: the absolute values of all products that are added to it, summed.

    Args:
        value: the matrix.
        size: the sizes, at least the absolute values of the entries, and larger where summands cancel.
    """

    value: Array
    size: Array

    def __add__(self, other: Any) -> "Sized":  # not that of tuples
        return Sized(self.value + other.value, self.size + other.size)


def with_sizes(arithmetic: Arithmetic) -> Arithmetic:
    """Return arithmetic of values with their sizes: `|A| |B|` of a product, `|σ(z)| + |σ'(z)| |z|` of an activation."""
    known = arithmetic.activations
    changed: dict[str, Any] = {
        each.name: _on_both(getattr(arithmetic, each.name)) for each in fields(Arithmetic) if each.name != "activations"
    }
    changed["power"] = lambda a, exponent: _curved(lambda z: arithmetic.power(z, exponent))(a)
    changed["activations"] = (
        {name: tuple(map(_curved, functions)) for name, functions in known.items()}
        if isinstance(known, Mapping)
        else tuple(map(_curved, known))
    )
    return Arithmetic(**changed)


def _on_both(operation: Callable[..., Any]) -> Callable[..., Sized]:
    """Return an operation that is linear in each of its matrices, on values and on sizes."""

    def on_both(*arguments: Any) -> Sized:
        values = [each.value if isinstance(each, Sized) else each for each in arguments]
        sizes = [each.size if isinstance(each, Sized) else each for each in arguments]
        return Sized(operation(*values), abs(operation(*sizes)))

    return on_both


def _curved(function: Callable[[Array], Array]) -> Callable[[Sized], Sized]:
    """Return a function of each entry, on values and on sizes."""

    def on_both(z: Sized) -> Sized:
        value, moved = jax.jvp(function, (z.value,), (z.size,))
        # Where the slope is infinite, rounding has no bound, and the value's own size is kept.
        return Sized(value, abs(value) + jnp.where(jnp.isfinite(moved), abs(moved), 0))

    return on_both
