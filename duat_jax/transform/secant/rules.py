"""Rules for the change of each primitive's results, linear in the changes of its operands."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.identities import fence_p
from duat_jax.transform.parameters import mixed_axes_of, power_of, reduced_axes_of
from duat_jax.transform.primitives import ALL, ELEMENTWISE, LINEAR, apply, linear_operands
from duat_jax.transform.secant import elementwise_secants as secants
from duat_jax.transform.secant.changed_value import (
    ChangedValue,
    finite,
    movement,
    part_of,
    wide,
    with_jumps_from_infinity,
)
from duat_jax.transform.secant.maxima import cumulative_extremum_change, extremum_change, windows
from duat_jax.transform.secant.orders import extremes, ordered
from duat_jax.transform.secant.products import product_change
from duat_jax.transform.secant.softmax import cumulated_logsumexp

Changes = Sequence[Array | None]
Change = Callable[[core.JaxprEqn, list[ChangedValue], list[ChangedValue], Any], Changes]
"""From an equation, its operands, its results and the share of the discontinuities that is added to the results'
changes."""


class Rule(NamedTuple):
    """The rule for a primitive that isn't linear.

    Args:
        change: returns the changes of its results.
        constant: whether its results are constant but for jumps.
        jumps: whether its results may jump where its operands don't; those of a constant function do.
        floats: whether it has no change where an operand that holds no floating-point numbers moves.
        flowing: the operands of which some may have a change, all others standing still; any if absent.
        bounds: whether its results jump where an operand is infinite at one input alone.
    """

    change: Change
    constant: bool = False
    jumps: bool = False
    floats: bool = False
    flowing: tuple[int, ...] | None = None
    bounds: bool = False

    def applies(self, flowing: Sequence[int], chooses: bool) -> bool:
        """Return whether the rule holds for the operands that move."""
        return not (self.floats and chooses) and (self.flowing is None or set(flowing) <= set(self.flowing))


RULES: dict[str, Rule] = {}
"""The rules, by primitive.  Linear primitives, calls, scans and branches need none."""


def _rule(*primitives: str, **properties: Any) -> Callable[[Change], Change]:
    """Return a decorator that makes a function the rule of primitives."""

    def define(change: Change) -> Change:
        if known := [name for name in primitives if name in RULES or LINEAR.get(name) == ALL]:
            raise ValueError(f"{', '.join(known)}: linear, or has a rule already")
        RULES.update(dict.fromkeys(primitives, Rule(change, **properties)))
        return change

    return define


def is_float(v: Any) -> bool:
    """Return whether a variable holds floating-point numbers."""
    return jnp.issubdtype(v.aval.dtype, jnp.inexact)


def changes(equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any) -> Changes:
    """Return the change of every result of an equation that isn't a call."""
    rule = RULES.get(equation.primitive.name)
    flowing = [k for k, operand in enumerate(operands) if operand.change is not None]
    if not flowing or (rule is not None and rule.constant):
        return _constant(equation, operands, results, jump)
    if not any(result.value.size for result in results):
        return [jnp.zeros_like(result.moved) for result in results]
    together = linear_operands(equation, flowing)
    if together is not None and set(flowing) <= set(together):
        return _linear(equation, operands, flowing, together, jump)
    return RULES[equation.primitive.name].change(equation, operands, results, jump)


@_rule("sign", "floor", "ceil", "round", "nextafter", constant=True, jumps=True)
def _constant(equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any) -> Changes:
    return [
        part_of(jump, result.moved) if is_float(v) else None
        for v, result in zip(equation.outvars, results, strict=True)
    ]


def _apply_one(equation: core.JaxprEqn, *operands: Any) -> Array:
    return apply(equation, operands)[0]


def at_both(equation: core.JaxprEqn, operands: Sequence[ChangedValue]) -> list[Array]:
    """Return an equation's results at both inputs, along a new first axis."""
    # Both are computed at once where a batch computes what its members do; one after the other where that isn't known,
    # as of random bits, of programs within a program and of a user's own rule for batches.
    if not _is_mapped(equation.primitive.name) or any(operand.apart for operand in operands):
        return [jnp.stack(pair) for pair in _pairs(equation, operands)]
    values = [operand.value for operand in operands]
    axes = [0 if operand.moves else None for operand in operands]
    if equation.primitive.name.startswith(("gather", "scatter")):
        # With one index for both, XLA for TPUs lays the axis of two inputs innermost, and pads it to 128.
        values = [x if axis == 0 else jnp.broadcast_to(x, (2, *x.shape)) for x, axis in zip(values, axes, strict=True)]
        axes = [0] * len(values)
    return jax.vmap(lambda *values: apply(equation, values), axes)(*values)


MAPPED = ELEMENTWISE | {"argmax", "argmin", "reduce_and", "reduce_or"}
"""Primitives of which a batch computes what its members do, besides those that are linear or have a rule."""


def _is_mapped(name: str) -> bool:
    # JAX can't map a ragged product over both inputs.
    return name != "ragged_dot_general" and (name in MAPPED or name in LINEAR or name in RULES)


def _pairs(equation: core.JaxprEqn, operands: Sequence[ChangedValue]) -> list[tuple[Array, Array]]:
    first, second = (apply(equation, values) for values in zip(*(operand.both for operand in operands), strict=True))
    return list(zip(first, second, strict=True))


RELAYING = frozenset(
    ("transpose", "reshape", "convert_element_type", "squeeze", "expand_dims", "slice", "split", "copy", "copy_p")
)
"""Primitives through which two values stay apart, and their mean is passed on: a mean of transposed weights would be
computed from both in another layout."""


def values_of(equation: core.JaxprEqn, operands: Sequence[ChangedValue]) -> list[ChangedValue]:
    """Return an equation's results at both inputs, without their changes."""
    if equation.primitive.name in RELAYING and operands[0].apart:
        pairs = _pairs(equation, operands)
        # A mean in a narrow dtype has lost digits that a wider one keeps; whole numbers have none.
        has_middle = is_float(equation.invars[0]) and equation.primitive.name != "convert_element_type"
        middles = apply(equation, [operands[0].middle]) if has_middle else [None] * len(pairs)
        return [ChangedValue(pair, True, middle=middle) for pair, middle in zip(pairs, middles, strict=True)]
    return [ChangedValue(value, True) for value in at_both(equation, operands)]


def _linear(
    equation: core.JaxprEqn,
    operands: list[ChangedValue],
    flowing: list[int],
    together: Sequence[int],
    jump: Array | None,
) -> list[Array]:
    """Return the changes of a linear operation; where it selects differently at both inputs, their mean."""

    def choices(operand: ChangedValue, k: int) -> ChangedValue:
        if k in flowing:
            return ChangedValue(operand.change)
        return ChangedValue(jnp.zeros_like(operand.both[0])) if k in together else operand

    chosen = [choices(operand, k) for k, operand in enumerate(operands)]
    if jump is None:
        values = [operand.value for operand in chosen]
        if equation.primitive.name.startswith("reduce_window"):  # transposed, it sums over all windows of an entry
            values = [value.astype(wide(value.dtype)) for value in values]
        return apply(equation, values)
    mean = [both.mean(0) for both in at_both(equation, chosen)]
    middles = [ChangedValue(operand.middle) if k in together else operand for k, operand in enumerate(operands)]
    moved = [movement(*both) for both in at_both(equation, middles)]
    return [change + part_of(jump, part) for change, part in zip(mean, moved, strict=True)]


def _product(multiply: Callable[..., Array], operands: Sequence[ChangedValue]) -> Array:
    a, b, *remaining_operands = operands
    remaining = [operand.value for operand in remaining_operands]
    summands = []
    if a.change is not None:
        summands.append(multiply(a.change, b.factor, *remaining))
    if b.change is not None:
        summands.append(multiply(a.factor, b.change, *remaining))
    return sum(summands[1:], start=summands[0])


def _quotient(a: ChangedValue, b: ChangedValue) -> Array:
    inverse = ChangedValue(1 / b.value, b.moves)
    # This order avoids the product of both inverses, which leaves the dtype's range sooner.
    of_b = finite(-a.factor * inverse.both[0] * inverse.both[1]) * b.change
    return of_b if a.change is None else a.change * inverse.factor + of_b


def _elementwise(f: Callable[..., Array], name: str, operands: Sequence[ChangedValue]) -> Array:
    if name == "exp":
        operands = list(map(_computed_apart, operands))
    flowing = [k for k, operand in enumerate(operands) if operand.change is not None]
    shape = jnp.broadcast_shapes(*(jnp.shape(operand.both[0]) for operand in operands))  # bounds may be single numbers
    points = [tuple(jnp.broadcast_to(z, shape) for z in operand.both) for operand in operands]
    slopes = secants.coefficients(f, name, points, flowing)
    first, *remaining = (
        _where_finite(c, operands[k]) * operands[k].change for c, k in zip(slopes, flowing, strict=True)
    )
    return sum(remaining, start=first)


def _computed_apart(operand: ChangedValue) -> ChangedValue:
    """Return a value at both inputs that isn't fused with what is computed from it."""
    # A compiler for CPUs evaluates exponentials of a difference of two fused values entry by entry, not in vectors.
    if operand.apart or not operand.moves:
        return operand
    return ChangedValue(fence_p.bind(operand.value), True, operand.change)


def _where_finite(slope: Array, operand: ChangedValue) -> Array:
    """Return a slope where it and both points are finite, else zero: that of a branch that isn't taken may be NaN."""
    first, second = operand.both
    return jnp.where(jnp.isinf(first) | jnp.isinf(second), 0, finite(slope))


_rule("sort", "top_k", jumps=True)(ordered)
_rule("scatter-max", "scatter-min", jumps=True)(extremes)
_rule("cumlogsumexp")(cumulated_logsumexp)


@_rule("stop_gradient")
def _stop_gradient(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> Changes:
    return [operands[0].change]


@_rule("mul", "dot_general", "conv_general_dilated", "ragged_dot_general", floats=True)
def _bilinear(equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any) -> Changes:
    return [_product(partial(_apply_one, equation), operands)]


@_rule("div")
def _div(equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any) -> Changes:
    return [_quotient(*operands)]


@_rule("integer_pow")
def _integer_pow(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> Changes:
    (x,) = operands
    power: Any = power_of(equation)
    return [_where_finite(secants.whole_power(power, *x.both), x) * x.change]


@_rule("polynomial", flowing=(0,))
def _polynomial(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> Changes:
    x, *coefficients = operands
    slope = secants.polynomial([coefficient.value for coefficient in coefficients], *x.both)
    return [_where_finite(slope, x) * x.change]


@_rule(*secants.CLOSED, *secants.SLOPED, floats=True, bounds=True)
def _entry_by_entry(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> Changes:
    change = partial(_elementwise, partial(_apply_one, equation), equation.primitive.name)
    return [with_jumps_from_infinity(change, operands, results[0], jump)]


@_rule("regularized_incomplete_beta", floats=True, flowing=(2,))
def _incomplete_beta(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> Changes:
    # JAX has no derivative in the other two.
    return _entry_by_entry(equation, operands, results, jump)


@_rule("reduce_max", "reduce_min", bounds=True)
def _reduce(equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any) -> Changes:
    axes = reduced_axes_of(equation)

    def change(operands: Sequence[ChangedValue]) -> Array:
        return extremum_change(equation.primitive.name, operands[0], axes)

    return [with_jumps_from_infinity(change, operands, results[0], jump, axes)]


@_rule("reduce_window_max", "reduce_window_min")
def _reduce_window(
    equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any
) -> Changes:
    return [extremum_change(equation.primitive.name, windows(equation, operands[0]), (0,))]


@_rule("cummax", "cummin")
def _cumulate(equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any) -> Changes:
    return [cumulative_extremum_change(equation, operands[0])]


@_rule("reduce_prod", "cumprod")
def _products(equation: core.JaxprEqn, operands: list[ChangedValue], results: list[ChangedValue], jump: Any) -> Changes:
    shape = operands[0].both[0].shape
    return [product_change(equation, operands[0], prod(shape[axis] for axis in mixed_axes_of(equation)))]
