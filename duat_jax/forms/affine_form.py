"""The affine form of a function at one input, its collapse: `x_L = W(x_0) x_0 + b(x_0)`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.errors import DuatError
from duat_jax.forms.completeness import Completeness, completeness_of, entrywise_completeness, together
from duat_jax.forms.decomposition import checked_readout, dot, inputs_times, products, require_flowing
from duat_jax.forms.subject import Model, from_embeddings
from duat_jax.operators.base import LinearMap
from duat_jax.operators.function import LinearFunction
from duat_jax.transform import marks
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Step
from duat_jax.transform.liveness import Question
from duat_jax.transform.query import Target, activations_of, ask, at_zero, pull_back
from duat_jax.transform.recording import Recording, record_kinds

KINDS = (marks.HOLD, marks.PRE_ACTIVATION, marks.ACTIVATION, marks.OFFSET)
"""The marks that the collapse needs."""


class Collapse(NamedTuple):
    """A function as one affine map at one input: `fn(x) = linear(x) + bias`.

    Args:
        linear: `W(x_0)`.
        bias: `b(x_0)`.
        completeness: of `W(x_0) x_0 + b(x_0)` beside the function's value, entry by entry.
    """

    linear: LinearMap
    bias: Array
    completeness: Completeness


class CollapsedContributions(NamedTuple):
    """One scalar read-out split over the entries of its input and one bias.

    Args:
        input: contribution of every entry of the argument, in the argument's structure.
        bias: what doesn't depend on the input.
        completeness: value, sum, error and tolerance.
    """

    input: Any
    bias: Array
    completeness: Completeness


def _question(recording: Recording, target: Target) -> Question:
    program = recording.program
    activations = program.of_kind(marks.ACTIVATION)
    linear = {*program.of_kind(marks.OFFSET), *(site._replace(kind=marks.AT_ZERO) for site in activations)}
    slopes = {site._replace(kind=marks.SLOPE) for site in activations}
    return Question(
        given=frozenset({*program.of_kind(marks.HOLD), *linear, *slopes}),
        linear=frozenset(linear),
        linearised=frozenset(activations),
        wanted=frozenset() if target is None else frozenset({target.site}),
        value=target is None,
        affine=True,
    )


def _slopes(recording: Recording) -> Seen:
    """Return `σ(0)` and the slope `(σ(z) − σ(0)) / z` of every term."""
    program, seen = recording.program, recording.seen
    z = {site: seen[site] for site in program.of_kind(marks.PRE_ACTIVATION)}
    zeros, ones = jax.tree.map(jnp.zeros_like, z), jax.tree.map(jnp.ones_like, z)
    at, derivative = jax.jvp(partial(activations_of, recording), (zeros,), (ones,))
    given: Seen = {}
    for site, constant in at.items():
        pre_activation = z[site._replace(kind=marks.PRE_ACTIVATION)]
        slope = (seen[site] - constant) / jnp.where(pre_activation == 0, 1, pre_activation)
        # Where σ has no derivative at zero, any slope is exact.
        slope_at_zero = jnp.where(jnp.isfinite(derivative[site]), derivative[site], 0)
        given[site._replace(kind=marks.AT_ZERO)] = constant
        given[site._replace(kind=marks.SLOPE)] = jnp.where(pre_activation == 0, slope_at_zero, slope)
    return given


def _require(recording: Recording, target: Target) -> tuple[Step, ...]:
    """Return the terms that a target depends on, every one of which has to be affine."""
    affinity = recording.traced.affinity
    terms = affinity.upstream(target)
    affinity.require(*terms, *([] if target is None else [target]), value=target is None)
    return terms


@dataclass(frozen=True)
class _Collapsed:
    target: Target

    def __call__(self, data: tuple[Recording, Seen], x: Array) -> Array:
        return _carry(*data, x, self.target)


@partial(jax.jit, static_argnames="target")
def _carry(recording: Recording, given: Seen, x: Array, target: Target) -> Array:
    question = _question(recording, target)
    return jax.jvp(lambda x: ask(recording, question, target, [x], given), (jnp.zeros_like(x),), (x,))[1]


@jax.jit
def _bias(recording: Recording, given: Seen) -> Any:
    return ask(recording, _question(recording, None), None, [jnp.zeros_like(recording.arguments[0])], given)


def collapse_of(recording: Recording) -> Collapse:
    """Return a recorded function as one affine map at one input: `fn(x) = W(x) x + b(x)`.

    Args:
        recording: the forward pass of a function of one array that returns one array.

    Raises:
        DuatError: if the argument or the result isn't one array.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.
    """
    if len(recording.arguments) != 1 or not isinstance(recording.value, jax.Array):
        raise DuatError(
            "the collapse is one affine map of one array to one array: bring the other arguments in by closing over"
            " them, and return one result"
        )
    require_flowing(recording)
    _require(recording, None)
    given = jax.jit(_slopes)(recording)
    x = recording.arguments[0]
    linear = LinearFunction(_Collapsed(None), (recording, given), jax.ShapeDtypeStruct(x.shape, x.dtype))
    bias = _bias(recording, given)
    return Collapse(linear, bias, entrywise_completeness(recording.value, [linear(x), bias]))


def collapse(fn: Callable[[Array], Array] | Model, x: Any) -> Collapse:
    """Return a marked function as one affine map at one input: `fn(x) = W(x) x + b(x)`.

    Every term's slope `s = (σ(z) − σ(0)) / z` is held (at `z = 0` it is `σ'(0)`), and `σ(0)` is carried as a bias.
    Where σ is piecewise linear, the map is exact in a neighbourhood.

    Args:
        fn: a pure function of one array with marks, or a model; a model is collapsed from its embeddings on.
        x: its argument; for a model, token ids `[tokens]`.

    Returns:
        The linear map without its matrix, the bias, and their completeness.

    Raises:
        DuatError: if `x` or the result isn't one array.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import term
        >>> form = collapse(lambda x: x + term(jax.nn.relu, 2 * x, "relu"), jnp.array([1.0, -1.0]))
        >>> form.linear.dense().tolist(), form.bias.tolist()
        ([[3.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    """
    fn, x = from_embeddings(fn, x)
    return collapse_of(record_kinds(fn, x, KINDS))


def collapsed_contributions(
    recording: Recording, readout: Any = None, *, target: Target = None
) -> CollapsedContributions:
    """Split one read-out of a recording over the entries of its input and one bias, by the collapse.

    Args:
        recording: a function's forward pass.
        readout: a covector on the target; may be absent where the target is one scalar.
        target: what is read; the function's result if absent.
    """
    require_flowing(recording)
    _require(recording, target)
    readout = checked_readout(readout, recording.value if target is None else recording.at(target))
    return _contributions(recording, readout, target)


@partial(jax.jit, static_argnames="target")
def _contributions(recording: Recording, readout: Any, target: Target) -> CollapsedContributions:
    question, given = _question(recording, target), _slopes(recording)
    on_input, on_marks = pull_back(recording, question, target, readout, given)
    read = products(readout, recording.value if target is None else recording.at(target))
    value = reduce(jnp.add, [product.sum() for product in read])
    inputs = inputs_times(on_input, recording.arguments, value.dtype)
    biases = [on * (given[site] if site in given else recording.seen[site]) for site, on in on_marks.items()]
    terms = recording.traced.affinity.upstream(target)
    if recording.traced.affinity.adds_a_constant(target, *terms):
        biases.append(dot(readout, at_zero(recording, question, target, given)))
    bias = sum((b.sum() for b in together(biases)), jnp.zeros_like(value))
    # Every activation is rounded on the way, though it is no part.
    activations = recording.program.of_kind(marks.ACTIVATION)
    carried = [on_marks[site._replace(kind=marks.AT_ZERO)] * recording.seen[site] for site in activations]
    completeness = completeness_of(value, [*inputs, *biases], [*inputs, *biases, *carried, *read])
    return CollapsedContributions(jax.tree.unflatten(recording.in_tree, inputs), bias, completeness)
