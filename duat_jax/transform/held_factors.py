"""Programs that are linear once their nonlinear factors are held: an optimiser's update, as a map of the gradients.

Every value of a program is one of three: it doesn't depend on what flows, it is linear in it, or it is held. A product
of a linear value and a held one is linear; what a primitive isn't linear in is held from there on, such as a norm, a
second moment or a Gram matrix.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from duat_jax.transform.calls import SubProgram, programs_in, scan_of, sub_program
from duat_jax.transform.diagnosis import source_line
from duat_jax.transform.parameters import bind
from duat_jax.transform.primitives import apply, linear_operands


class Kind(IntEnum):
    """The dependence of a value on what flows; of several values that are added it is the largest."""

    STILL = 0
    LINEAR = 1
    HELD = 2


class Dependence(NamedTuple):
    """The dependence of a value on what flows.

    Args:
        kind: whether it is linear or held.
        origin: of a held value, the primitive that isn't linear in what flows, with its source line.
    """

    kind: Kind
    origin: str = ""

    def __or__(self, other: "Dependence") -> "Dependence":
        return max(self, other, key=lambda dependence: dependence.kind)


STILL, LINEAR = Dependence(Kind.STILL), Dependence(Kind.LINEAR)


def dependences(program: SubProgram, arguments: Sequence[Dependence]) -> list[Dependence]:
    """Return how each result of a program depends on what flows."""
    known = dict.fromkeys(program.jaxpr.constvars, STILL) | dict(zip(program.jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Dependence:
        return STILL if isinstance(atom, core.Literal) else known[atom]

    for equation in program.jaxpr.eqns:
        known |= zip(equation.outvars, _of_results(equation, list(map(read, equation.invars))), strict=True)
    return list(map(read, program.jaxpr.outvars))


def with_held_factors(
    program: SubProgram, arguments: Sequence[Dependence]
) -> Callable[[Sequence[jax.Array]], list[jax.Array]]:
    """Return a program as a function whose derivative is the map with all nonlinear factors held."""
    # Its values are the program's wherever factors are finite. Where they aren't, as in a branch that isn't taken, they
    # count as zero, so that a derivative of zero stays zero.

    def run(values: Sequence[jax.Array]) -> list[jax.Array]:
        computed_values: dict[Any, Any] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        known = dict.fromkeys(program.jaxpr.constvars, STILL) | dict(zip(program.jaxpr.invars, arguments, strict=True))
        computed_values |= zip(program.jaxpr.invars, map(_held, values, arguments), strict=True)

        def read(atom: Any) -> tuple[Any, Dependence]:
            return (atom.val, STILL) if isinstance(atom, core.Literal) else (computed_values[atom], known[atom])

        for equation in program.jaxpr.eqns:
            operands, own = zip(*map(read, equation.invars), strict=True) if equation.invars else ((), ())
            results = _of_results(equation, own)
            computed = _computed(equation, operands, own, results)
            computed_values |= zip(equation.outvars, map(_held, computed, results), strict=True)
            known |= zip(equation.outvars, results, strict=True)
        return [read(atom)[0] for atom in program.jaxpr.outvars]

    return run


def _held(value: Any, dependence: Dependence) -> Any:
    return lax.stop_gradient(value) if dependence.kind is Kind.HELD else value


def _of_results(equation: core.JaxprEqn, operands: Sequence[Dependence]) -> list[Dependence]:
    """Return how the results of an equation depend on what flows."""
    name, outputs = equation.primitive.name, equation.outvars
    if all(operand.kind is Kind.STILL for operand in operands):
        return [STILL] * len(outputs)
    if name == "scan":
        return _carried(equation, operands)[1]
    if (inner := sub_program(equation)) is not None:
        return dependences(inner, operands)
    if name == "cond" and operands[0].kind is not Kind.LINEAR:
        branches = [dependences(branch, operands[1:]) for branch in programs_in(equation)]
        return [_joined(of_output) for of_output in zip(*branches, strict=True)]
    linear = [k for k, operand in enumerate(operands) if operand.kind is Kind.LINEAR]
    if not linear:
        return [_joined(operands)] * len(outputs)
    place = source_line(equation)
    held = Dependence(Kind.HELD, f"{name} at {place}" if place else name)
    together = linear_operands(equation, linear)
    if together is None or not set(linear) <= set(together):
        return [held] * len(outputs)
    flowing = _joined([operands[k] for k in together])
    return [flowing if jnp.issubdtype(v.aval.dtype, jnp.inexact) else held for v in outputs]  # type: ignore[attr-defined]


def _joined(dependences: Sequence[Dependence]) -> Dependence:
    return reduce(Dependence.__or__, dependences, STILL)


def _carried(equation: core.JaxprEqn, operands: Sequence[Dependence]) -> tuple[list[Dependence], list[Dependence]]:
    """Return how the arguments of a scan's body depend on what flows, over all steps, and how the results do."""
    first, carries, *_ = scan_of(equation)
    body, arguments = sub_program(equation), list(operands)
    assert body is not None
    while True:
        results = dependences(body, arguments)
        carried = [a | b for a, b in zip(arguments[first : first + carries], results[:carries], strict=True)]
        if carried == arguments[first : first + carries]:
            return arguments, [*carried, *results[carries:]]
        arguments[first : first + carries] = carried


def _computed(
    equation: core.JaxprEqn, operands: Sequence[Any], own: Sequence[Dependence], results: Sequence[Dependence]
) -> Sequence[Any]:
    """Return the values of an equation's results."""
    if all(result.kind is not Kind.LINEAR for result in results):
        return bind(equation, [lax.stop_gradient(operand) for operand in operands])
    if equation.primitive.name == "scan":
        return _scan(equation, operands, own)
    if (inner := sub_program(equation)) is not None:
        return with_held_factors(inner, own)(operands)
    if equation.primitive.name == "cond":
        branches = [with_held_factors(branch, own[1:]) for branch in programs_in(equation)]

        def run(branch: Callable[[Sequence[Any]], list[Any]], *values: Any) -> list[Any]:
            return list(map(_held, branch(values), results))

        return list(lax.switch(operands[0], [partial(run, branch) for branch in branches], *operands[1:]))
    finite = [
        x if dependence.kind is Kind.LINEAR else _finite(equation, k, x)
        for k, (x, dependence) in enumerate(zip(operands, own, strict=True))
    ]
    return apply(equation, finite)


def _finite(equation: core.JaxprEqn, place: int, factor: Any) -> Any:
    """Return a factor of a linear value without what is infinite or NaN, or is divided by and zero."""
    name = equation.primitive.name
    if name not in ("mul", "div", "dot_general") or not jnp.issubdtype(jnp.result_type(factor), jnp.inexact):
        return factor
    safe = jnp.isfinite(factor)
    divides = name == "div" and place == 1
    return jnp.where(safe & (factor != 0), factor, 1) if divides else jnp.where(safe, factor, 0)


def _scan(equation: core.JaxprEqn, operands: Sequence[Any], own: Sequence[Dependence]) -> list[Any]:
    first, carries, length, reverse, unroll = scan_of(equation)
    arguments, results = _carried(equation, own)
    body = sub_program(equation)
    assert body is not None
    run = with_held_factors(body, arguments)

    def step(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        computed = list(map(_held, run([*operands[:first], *carry, *slices]), results))
        return computed[:carries], computed[carries:]

    initial = list(map(_held, operands[first : first + carries], results))
    final, stacked = lax.scan(
        step, initial, list(operands[first + carries :]), length=length, reverse=reverse, unroll=unroll
    )
    return [*final, *stacked]
