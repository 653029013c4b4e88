"""A traced program evaluated in double precision, whatever dtypes it has, and what its result owes to each value."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.calls import SubProgram, programs_in, scan_of, sub_program, while_of
from duat_jax.transform.diagnosis import is_of_a_library, source_line
from duat_jax.transform.identities import fence_p, mark_p
from duat_jax.transform.mark_places import Path
from duat_jax.transform.parameters import bind, bind_in_double, overwrites, role_of, scatter_of, scopes_of
from duat_jax.transform.primitives import ELEMENTWISE, LINEAR
from duat_jax.transform.secant.plan import branches_of
from duat_jax.transform.secant.rules import RULES

KNOWN = ELEMENTWISE | LINEAR.keys() | RULES.keys()
"""Primitives that compute in the dtype of their operands."""

SCATTERS = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-sub": lax.scatter_sub,
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}


EXACT = frozenset(
    (
        *("broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "concatenate", "slice", "split", "rev"),
        *("stack", "unstack", "tile", "pad", "copy", "copy_p", "name", "gather", "dynamic_slice", "select_n", "neg"),
        *("dynamic_update_slice", "abs", "max", "min", "clamp", "sign", "stop_gradient", "optimization_barrier"),
        *("reduce_max", "reduce_min", "sort", mark_p.name, fence_p.name),
    )
)
"""Primitives that round nothing."""


class FloatEquation(NamedTuple):
    """An equation that computes floating-point numbers.

    Args:
        equation: the equation.
        line: its source line, or that of the call around it.
        operands: the places where its operands are computed, as far as they are known.
    """

    equation: core.JaxprEqn
    line: str | None
    operands: tuple[Path, ...]


def double(x: Any) -> Any:
    """Return floating-point numbers, complex ones too, in double precision, and anything else as it is."""
    for kind, dtype in ((jnp.floating, jnp.float64), (jnp.complexfloating, jnp.complex128)):
        if jnp.issubdtype(jnp.result_type(x), kind):
            return jnp.asarray(x, dtype)
    return x


class DoublePrecision:
    """The evaluation of a program in double precision; needs `jax.enable_x64`.

    Args:
        jaxpr: the program's equations.
        constants: the arrays that it closes over.
    """

    def __init__(self, jaxpr: core.Jaxpr, constants: Sequence[Any]) -> None:
        self._program = SubProgram(jaxpr, constants)
        self.steps: dict[Path, FloatEquation] = {}
        """The equations that were evaluated, by path."""

    def __call__(self, arguments: Sequence[Any], shifts: dict[Path, Any]) -> tuple[Array, dict[Path, Any]]:
        """Return the program's only result, and every value on the way, by the path of its equation."""
        places: list[Path] = [(-1 - i,) for i in range(len(arguments))]
        ((result,), _), seen = self._run(self._program, (), None, list(map(double, arguments)), places, shifts)
        return jnp.asarray(result), seen

    def _run(
        self,
        program: SubProgram,
        path: Path,
        around: str | None,
        arguments: Sequence[Any],
        places: Sequence[Path],
        shifts: dict[Path, Any],
    ) -> tuple[tuple[list[Any], list[Path]], dict[Path, Any]]:
        jaxpr = program.jaxpr
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, map(double, program.consts), strict=True))
        values |= dict(zip(jaxpr.invars, arguments, strict=True))
        place_of: dict[Any, Path] = dict(zip(jaxpr.invars, places, strict=True))
        seen: dict[Path, Any] = {}

        def read(v: Any) -> Any:
            return double(np.asarray(v.val, _dtype_of(v))) if isinstance(v, core.Literal) else values[v]

        def place(v: Any) -> Path:
            return () if isinstance(v, core.Literal) else place_of.get(v, ())

        for i, equation in enumerate(jaxpr.eqns):
            here, inner = (*path, i), sub_program(equation)
            line = (None if is_of_a_library(jaxpr) else source_line(equation)) or around
            operands, where = [read(v) for v in equation.invars], [place(v) for v in equation.invars]
            if inner is not None:
                follow = self._scan if equation.primitive.name == "scan" else self._call
                (results, at), inside = follow(equation, inner, here, line, operands, where, shifts)
                seen |= inside
            elif equation.primitive.name == "cond":
                results, inside = self._cond(equation, here, line, operands, shifts)
                seen, at = seen | inside, [()] * len(results)
            else:
                results, at = self._results(equation, here, line, operands), [here] * len(equation.outvars)
                self.steps[here] = FloatEquation(equation, line, tuple(where))
                if here in shifts:
                    results = [a + b for a, b in zip(results, shifts[here], strict=True)]
                seen[here] = [double(value) for value in results if _is_float(value)]
                if len(seen[here]) != len(results):
                    del seen[here]
            values |= dict(zip(equation.outvars, results, strict=True))
            place_of |= dict(zip(equation.outvars, at, strict=True))
        return ([read(v) for v in jaxpr.outvars], [place(v) for v in jaxpr.outvars]), seen

    def _call(
        self, equation: core.JaxprEqn, inner: SubProgram, here: Path, line: str | None, *rest: Any
    ) -> tuple[tuple[list[Any], list[Path]], dict[Path, Any]]:
        return self._run(inner, here, line, *rest)

    def _scan(
        self,
        equation: core.JaxprEqn,
        body: SubProgram,
        here: Path,
        line: str | None,
        operands: list[Any],
        places: list[Path],
        shifts: dict[Path, Any],
    ) -> tuple[tuple[list[Any], list[Path]], dict[Path, Any]]:
        first, carries, length, reverse, unroll = scan_of(equation)
        inside = {path: shift for path, shift in shifts.items() if path[: len(here)] == here}
        at: list[Path] = []

        def step(carry: list[Any], xs: tuple[list[Any], dict[Path, Any]]) -> tuple[list[Any], Any]:
            slices, shifts = xs
            (results, computed), seen = self._run(
                body, here, line, [*operands[:first], *carry, *slices], places, shifts
            )
            at[:] = computed
            return results[:carries], (results[carries:], seen)

        after, (stacked, seen) = lax.scan(
            step,
            operands[first : first + carries],
            (operands[first + carries :], inside),
            length=length,
            reverse=reverse,
            unroll=unroll,
        )
        return ([*after, *stacked], at), seen

    def _cond(
        self, equation: core.JaxprEqn, here: Path, line: str | None, operands: list[Any], shifts: dict[Path, Any]
    ) -> tuple[list[Any], dict[Path, Any]]:
        """Return the results of the branch that is taken, and the values of all, zeros in those that aren't."""
        index, *arguments = operands

        def follow(branch: SubProgram, path: Path) -> tuple[list[Any], dict[Path, Any]]:
            (results, _), seen = self._run(branch, path, line, arguments, [()] * len(arguments), shifts)
            return results, seen

        branches = [partial(follow, branch, path) for branch, path in branches_of(equation, here)]
        nothing = {
            path: jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), shapes)
            for branch in branches
            for path, shapes in jax.eval_shape(branch)[1].items()
        }

        def with_all(branch: Callable[[], tuple[list[Any], dict[Path, Any]]]) -> tuple[list[Any], dict[Path, Any]]:
            results, seen = branch()
            return list(map(jnp.asarray, results)), nothing | seen

        results, seen = lax.switch(index, [partial(with_all, branch) for branch in branches])
        return results, seen

    def _results(self, equation: core.JaxprEqn, here: Path, line: str | None, operands: list[Any]) -> list[Any]:
        name, programs = equation.primitive.name, programs_in(equation)

        def alone(program: SubProgram, *arguments: Any) -> list[Any]:
            return self._run(program, (*here, -1), line, arguments, [()] * len(arguments), {})[0][0]

        if name == "while":
            operands = list(map(lax.stop_gradient, operands))
            condition, body, n, m = while_of(equation)
            first, second, state = operands[:n], operands[n : n + m], operands[n + m :]
            return lax.while_loop(
                lambda state: alone(SubProgram(condition, ()), *first, *state)[0],
                lambda state: alone(SubProgram(body, ()), *second, *state),
                state,
            )
        if equation.primitive is mark_p:
            with jax.named_scope("/".join(scopes_of(equation))):
                return [mark_p.bind(operands[0], **role_of(equation))]
        if name == "reduce_precision":
            return [operands[0]]
        if name in SCATTERS and (name != "scatter" or overwrites(equation)):
            return [SCATTERS[name](*operands, **scatter_of(equation))]
        if name in KNOWN and not programs:
            return bind_in_double(equation, operands)
        own = [
            lax.stop_gradient(value).astype(_dtype_of(v)) if jnp.issubdtype(_dtype_of(v), jnp.inexact) else value
            for v, value in zip(equation.invars, operands, strict=True)
        ]
        return list(map(double, bind(equation, own)))


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jnp.floating)


def _dtype_of(v: Any) -> Any:
    return v.aval.dtype
