"""The collapse of a closed form to one affine map: `x_L = W(x_0) x_0 + b(x_0)`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax import marks
from duat_jax.contributions import Closure, closure_of, number_of_terms, require_scalar
from duat_jax.errors import DuatError
from duat_jax.evaluate import Seen
from duat_jax.linear_map import LinearMap, derivative_of
from duat_jax.program import Site
from duat_jax.record_replay import Affine
from duat_jax.recording import Recording, pull_back, record_program, shares, unmarked

KINDS = (marks.HOLD, marks.PRE_ACTIVATION, marks.ACTIVATION, marks.OFFSET, marks.AT_ZERO, marks.SLOPE_AT_ZERO)
"""The marks that the collapse needs."""


class Collapse(NamedTuple):
    """A function as one affine map at one input: `fn(x) = linear(x) + bias`.

    Args:
        linear: `W(x_0)`.
        bias: `b(x_0)`.
    """

    linear: LinearMap
    bias: Any


class CollapsedContributions(NamedTuple):
    """One scalar read-out split over the entries of its input and one bias.

    Args:
        input: share of every entry of the argument, in the argument's structure.
        bias: what doesn't depend on the input.
        closure: value, sum, error and tolerance.
    """

    input: Any
    bias: Array
    closure: Closure


def _linearised(recording: Recording) -> tuple[Affine, Seen]:
    """Return the program with `σ(z) = σ(0) + s z`, the slopes `s` held, and its given values."""
    program, seen = recording.program, recording.seen
    given = {site: seen[site] for site in program.of_kind(marks.HOLD, marks.OFFSET, marks.AT_ZERO)}
    for site in program.of_kind(marks.ACTIVATION):
        z, activated = seen[Site(marks.PRE_ACTIVATION, site.key)], seen[site]
        lengths = program.lengths(site)
        at_zero, slope_at_zero = (
            seen[Site(kind, site.key)].reshape(lengths + (1,) * (z.ndim - len(lengths)))
            for kind in (marks.AT_ZERO, marks.SLOPE_AT_ZERO)
        )
        slope = (activated - at_zero) / jnp.where(z == 0, 1, z)
        # Where σ has no derivative at zero, any slope is exact.
        at_zero_slope = jnp.where(jnp.isfinite(slope_at_zero), slope_at_zero, 0)
        given[Site(marks.SLOPE_AT_ZERO, site.key)] = jnp.where(z == 0, at_zero_slope, slope)
    affine = recording.affine(
        linear=program.of_kind(marks.OFFSET, marks.AT_ZERO),
        held=program.of_kind(marks.HOLD, marks.SLOPE_AT_ZERO),
    )
    return affine, given


def collapse(fn: Callable[[Array], Array], x: Any) -> Collapse:
    """Return a marked function as one affine map at one input: `fn(x) = W(x) x + b(x)`.

    Every term's slope `s = (σ(z) − σ(0)) / z` is held (at `z = 0` it is `σ'(0)`), and `σ(0)` is carried as a bias.
    Where σ is piecewise linear, the map is exact in a neighbourhood.

    Args:
        fn: a pure function of one array, with marks.
        x: its argument.

    Returns:
        The linear map without its matrix, and the bias.

    Raises:
        DuatError: if `x` isn't one array.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import term
        >>> linear, bias = collapse(lambda x: x + term(jax.nn.relu, 2 * x, "relu"), jnp.array([1.0, -1.0]))
        >>> linear.dense().tolist(), bias.tolist()
        ([[3.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    """
    if not isinstance(x, jax.Array):
        raise DuatError("the collapse is an affine map of one array: bring the rest in by closing over it")
    recording = record_program(fn, x, KINDS)
    affine, given = _linearised(recording)

    def function(x: Array) -> Array:
        return affine([x], given)[0]

    return Collapse(derivative_of(function, jax.ShapeDtypeStruct(x.shape, x.dtype)), function(jnp.zeros_like(x)))


def collapsed_contributions(recording: Recording) -> CollapsedContributions:
    """Split a recorded scalar read-out over the entries of its input and one bias, by the collapse.

    Args:
        recording: a scalar function's forward pass, with the marks in `KINDS`.
    """
    program, value = recording.program, recording.value
    require_scalar(value)
    affine, given = _linearised(recording)
    on_input, on_marks = pull_back(affine, recording.arguments, given, value)
    input_shares = shares(on_input, recording.arguments)
    biases = [on_marks[site] * given[site] for site in on_marks]
    remainder = unmarked(affine, recording.arguments, given, value)
    bias = sum((b.sum() for b in biases), remainder)
    closure = closure_of(value, [*input_shares, *biases, remainder], number_of_terms(program))
    return CollapsedContributions(jax.tree.unflatten(recording.in_tree, input_shares), bias, closure)
