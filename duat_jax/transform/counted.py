"""Loops that count: a `while` whose number of steps is written in the program is a scan of as many."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from duat_jax.transform.calls import While, while_of, with_programs
from duat_jax.transform.parameters import bind

MOST = 10_000
"""The steps of the longest loop that is a scan."""


def counted(program: core.Jaxpr) -> core.Jaxpr:
    """Return a program in which every `while` with a fixed number of steps is a scan; itself if there is none."""
    equations = [_scanned(with_programs(equation, counted)) for equation in program.eqns]
    same = all(a is b for a, b in zip(equations, program.eqns, strict=True))
    return program if same else program.replace(eqns=equations)


def _scanned(equation: core.JaxprEqn) -> core.JaxprEqn:
    if equation.primitive.name != "while" or equation.effects:
        return equation
    loop = while_of(equation)
    steps = _steps(loop, equation.invars)
    if steps is None:
        return equation

    def run(*operands: Any) -> Any:
        consts = loop.of_condition + loop.of_body
        own, begin = operands[loop.of_condition : consts], operands[consts:]

        def step(carry: Any, _: None) -> tuple[Any, None]:
            return jax.core.eval_jaxpr(loop.body, (), *own, *carry), None

        return lax.scan(step, list(begin), None, length=steps)[0]

    (call,) = jax.make_jaxpr(jax.jit(run))(*(atom.aval for atom in equation.invars)).eqns
    return call.replace(invars=equation.invars, outvars=equation.outvars, source_info=equation.source_info)


def _steps(loop: While, operands: Sequence[Any]) -> int | None:
    """Return the number of steps of a loop whose condition reads nothing but numbers written in the program."""
    consts, own = loop.of_condition + loop.of_body, loop.of_condition
    needed, before = [False] * len(operands), None
    while needed != before:
        before = needed
        carried = [v for v, counts in zip(loop.body.outvars, needed[consts:], strict=True) if counts]
        of_condition, of_body = _read(loop.condition, loop.condition.outvars), _read(loop.body, carried)
        now = [*of_condition[:own], *of_body[: loop.of_body], *map(max, of_condition[own:], of_body[loop.of_body :])]
        needed = [a or b for a, b in zip(needed, now, strict=True)]
    if any(needs and not isinstance(atom, core.Literal) for needs, atom in zip(needed, operands, strict=True)):
        return None

    def goes_on(state: Any) -> Any:
        steps, values = state
        (condition,) = _evaluated(loop.condition, [*values[:own], *values[consts:]], loop.condition.outvars)
        return condition & (steps <= MOST)

    def step(state: Any) -> Any:
        steps, values = state
        after = iter(_evaluated(loop.body, values[own:], carried))
        return steps + 1, [*values[:consts], *(next(after) if counts else None for counts in needed[consts:])]

    with jax.ensure_compile_time_eval():
        begin = [
            jnp.asarray(atom.val, atom.aval.dtype) if needs else None
            for needs, atom in zip(needed, operands, strict=True)
        ]
        steps = int(lax.while_loop(goes_on, step, (0, begin))[0])
    return steps if steps <= MOST else None


def _needed(program: core.Jaxpr, results: Iterable[Any]) -> tuple[list[core.JaxprEqn], set[Any]]:
    """Return the equations that some results depend on, in order, and the variables."""
    needed, equations = {v for v in results if not isinstance(v, core.Literal)}, list[core.JaxprEqn]()
    for equation in reversed(program.eqns):
        if not needed.isdisjoint(equation.outvars):
            equations.append(equation)
            needed |= {atom for atom in equation.invars if not isinstance(atom, core.Literal)}
    return equations[::-1], needed


def _read(program: core.Jaxpr, results: Iterable[Any]) -> list[bool]:
    """Return which arguments some results depend on."""
    _, needed = _needed(program, results)
    return [v in needed for v in program.invars]


def _evaluated(program: core.Jaxpr, arguments: Iterable[Any], results: Sequence[Any]) -> list[Any]:
    """Evaluate some results of a program, of whose arguments those are given that are needed."""
    values = dict(zip(program.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in _needed(program, results)[0]:
        values |= zip(equation.outvars, bind(equation, [read(atom) for atom in equation.invars]), strict=True)
    return [read(atom) for atom in results]
