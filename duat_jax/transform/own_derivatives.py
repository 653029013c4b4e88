"""Functions whose derivative is that of their own operations, whatever rules of differentiation their author gave."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from duat_jax.transform.calls import SubProgram, closed, sub_program
from duat_jax.transform.parameters import bind, with_parameters


def by_own_operations(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function with the same values whose derivative is that of its operations."""
    # The rules of `jax.custom_jvp` and `jax.custom_vjp` and `jax.lax.stop_gradient` are left out, in branches and loops
    # too.

    def evaluated(x: Any) -> Any:
        program, shape = jax.make_jaxpr(fn, return_shape=True)(x)
        results = _run(closed(program), *jax.tree.leaves(x))
        return jax.tree.unflatten(jax.tree.structure(shape), results)

    return evaluated


def _run(program: SubProgram, *arguments: Any) -> list[Any]:
    jaxpr = program.jaxpr
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, program.consts, strict=True))
    values |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(v: Any) -> Any:
        return v.val if isinstance(v, core.Literal) else values[v]

    for equation in jaxpr.eqns:
        operands, inner = [read(v) for v in equation.invars], sub_program(equation)
        if equation.primitive.name == "stop_gradient":
            results = operands
        elif inner is not None and equation.primitive.name != "scan":
            results = _run(inner, *operands)
        else:
            results = bind(with_parameters(equation, _replaced), operands)
        values |= dict(zip(equation.outvars, results, strict=True))
    return [jnp.asarray(read(v)) for v in jaxpr.outvars]


def _replaced(parameter: Any) -> Any:
    """Return a parameter of an equation, with every program in it rewritten so."""
    if isinstance(parameter, tuple | list):
        return type(parameter)(map(_replaced, parameter)) if any(map(_holds_programs, parameter)) else parameter
    if not _holds_programs(parameter):
        return parameter
    program = closed(parameter)
    return jax.make_jaxpr(partial(_run, program))(*_shapes(program.jaxpr.invars))


def _holds_programs(parameter: Any) -> bool:
    return hasattr(parameter, "eqns")


def _shapes(variables: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type) for v in variables]
