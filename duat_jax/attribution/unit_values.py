"""Units of a model: their marks, their values on a text, and the scores that a method gives them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.models.layout import NO_LAYERS
from duat_jax.models.sites import HEADS, NEURONS, STREAM
from duat_jax.transform import marks
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Site
from duat_jax.transform.program import Program
from duat_jax.transform.recording import record_kinds

KINDS = (marks.POINT, marks.STREAM)
"""The kinds of mark of units."""


class Scores(NamedTuple):
    """Scores of units: each unit's attributed part of the difference between two texts.

    Args:
        neurons: of each neuron at each token, `[layers, tokens, neurons]`; absent if the method has none.
        heads: of each head's mixed values at each token, `[layers, tokens, heads]`; absent if the method has none.
        streams: of the residual stream before each layer and after the last one at each token, `[layers + 1, tokens]`;
            absent if the method has none.
    """

    neurons: Float[Array, "*prompts layers tokens neurons"] | None
    heads: Float[Array, "*prompts layers tokens heads"] | None
    streams: Float[Array, "*prompts streams tokens"] | None


class UnitValues(NamedTuple):
    """Marks of units, layer by layer; or arrays with a value, change or coefficient of every entry of the units.

    Args:
        neurons: entries `[layers, tokens, neurons]`.
        heads: `[layers, tokens, heads, head_features]`.
        streams: `[layers + 1, tokens, features]`.
    """

    neurons: Any
    heads: Any
    streams: Any


Read = Callable[[Array], Array]
"""From a text's embeddings to a number."""


def sites_of(program: Program) -> UnitValues:
    """Return the marks of all units."""

    def called(kind: str, name: str) -> tuple[Site, ...]:
        return tuple(site for site in program.of_kind(kind) if site.key.name == name)

    units = UnitValues(called(marks.POINT, NEURONS), called(marks.POINT, HEADS), called(marks.STREAM, STREAM))
    if not all(units):
        raise DuatError(NO_LAYERS)
    return units


def stacked(sites: UnitValues, values: Seen) -> UnitValues:
    """Return an array of each kind of units from arrays at their marks."""
    return UnitValues(*(jnp.stack([values[site] for site in of_a_kind]) for of_a_kind in sites))


def values_of(read: Read, x: Float[Array, "tokens features"]) -> UnitValues:
    """Return the values of all units on a text."""
    recording = record_kinds(read, x, KINDS)
    return stacked(sites_of(recording.program), recording.seen)


def mean_gradient(fn: Callable[[Array], Array], x: Array, y: Array, steps: int) -> Array:
    """Return a function's gradient, its mean over the straight line between two points."""
    return mean_over_steps(steps, x.dtype, lambda t: jax.grad(fn)(y + t * (x - y)))


def mean_over_steps(steps: int, dtype: Any, at: Callable[[Array], Any]) -> Any:
    """Return the mean of a function over the middles of equal steps from 0 to 1, evaluated one after the other."""
    total = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), jax.eval_shape(at, jnp.zeros((), dtype)))
    middles = (jnp.arange(steps, dtype=dtype) + 0.5) / steps
    total, _ = jax.lax.scan(lambda total, t: (jax.tree.map(jnp.add, total, at(t)), None), total, middles)
    return jax.tree.map(lambda values: values / steps, total)
