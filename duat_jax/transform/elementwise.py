"""Proof that an activation acts entry by entry, made on its own program at its real shape."""

from collections.abc import Iterable
from typing import Any

from jax.extend import core

from duat_jax.transform import marks
from duat_jax.transform.calls import programs_in, scan_of, sub_program, while_of
from duat_jax.transform.entrywise import Axes, axes_of_results, own_axes
from duat_jax.transform.identities import mark_p
from duat_jax.transform.parameters import role_of

Why = str
"""The reason why a value isn't elementwise: the operation that mixes entries."""
State = Why | Axes
"""Of a value each entry of which depends on one entry of the pre-activation, the axes along which these lie."""


def why_not_elementwise(
    jaxpr: core.Jaxpr, equations: range, z: core.Var, activation: Any, elsewhere: set[Any]
) -> Why | None:
    """Return why an activation isn't elementwise in its pre-activation alone, or `None` where it is."""
    states: dict[Any, State] = dict.fromkeys(elsewhere, "it depends on something else that flows")
    states[z] = own_axes(z)
    _visit(jaxpr, equations, states)
    state = None if isinstance(activation, core.Literal) else states.get(activation)
    if state is None or isinstance(state, str):
        return state
    return None if state == own_axes(z) and activation.aval.shape == z.aval.shape else "it moves its entries"  # type: ignore[attr-defined]


def _visit(jaxpr: core.Jaxpr, equations: Iterable[int], states: dict[Any, State]) -> None:
    """Extend the states of a program's variables; variables independent of the pre-activation have none."""
    for i in equations:
        equation = jaxpr.eqns[i]
        operands = [None if isinstance(v, core.Literal) else states.get(v) for v in equation.invars]
        for v in equation.outvars:
            states.pop(v, None)
        if equation.primitive is mark_p and role_of(equation)["kind"] == marks.OFFSET:
            states[equation.outvars[0]] = f"it contains offset({role_of(equation)['name']!r})"
        elif any(state is not None for state in operands) or sub_program(equation):
            results = _results(equation, operands)
            states |= {v: state for v, state in zip(equation.outvars, results, strict=True) if state is not None}


def _results(equation: core.JaxprEqn, operands: list[State | None]) -> list[State | None]:
    name, outputs = equation.primitive.name, equation.outvars
    if worst := next((state for state in operands if isinstance(state, str)), None):
        return [worst] * len(outputs)
    if name == "scan":
        return _scan(equation, operands)
    if name == "while":
        return _while(equation, operands)
    if name == "cond":
        return _cond(equation, operands)
    if (inner := sub_program(equation)) is not None:
        return _call(inner.jaxpr, operands)
    if name == "optimization_barrier":
        return operands
    along: Any = operands
    return [f"{name} mixes its entries" if axes is None else axes for axes in axes_of_results(equation, along)]


def _call(body: core.Jaxpr, operands: list[State | None]) -> list[State | None]:
    states = {v: state for v, state in zip(body.invars, operands, strict=True) if state is not None}
    _visit(body, range(len(body.eqns)), states)
    return [None if isinstance(v, core.Literal) else states.get(v) for v in body.outvars]


def _worse(a: State | None, b: State | None) -> State | None:
    known = [state for state in (a, b) if state is not None]
    why = [state for state in known if isinstance(state, str)]
    if not why and len(set(known)) > 1:
        return "its entries change places"
    return (why or known or [None])[0]


def _loop(body: core.Jaxpr, fixed: list, carried: list, sliced: list) -> list[State | None]:
    while True:
        results = _call(body, [*fixed, *carried, *sliced])
        joined = [_worse(a, b) for a, b in zip(carried, results[: len(carried)], strict=True)]
        if joined == carried:
            return [*joined, *results[len(carried) :]]
        carried = joined


def _scan(equation: core.JaxprEqn, operands: list[State | None]) -> list[State | None]:
    first, carries, *_ = scan_of(equation)
    fixed, carried, sliced = operands[:first], operands[first : first + carries], operands[first + carries :]
    results = _loop(programs_in(equation)[0].jaxpr, fixed, carried, sliced)
    mixed = "scan goes over its entries"
    if any(state is not None for state in sliced):
        return [mixed] * len(equation.outvars)
    return [*results[:carries], *(None if state is None else mixed for state in results[carries:])]


def _while(equation: core.JaxprEqn, operands: list[State | None]) -> list[State | None]:
    condition, body, skipped, first = while_of(equation)
    results = _loop(body, operands[skipped : skipped + first], operands[skipped + first :], [])
    if _call(condition, [*operands[:skipped], *results]) != [None]:
        return ["while runs as long as some entry asks for it"] * len(equation.outvars)
    return results


def _cond(equation: core.JaxprEqn, operands: list[State | None]) -> list[State | None]:
    if operands[0] not in (None, ()):
        return ["cond chooses by its entries"] * len(equation.outvars)
    results: list[State | None] = [operands[0]] * len(equation.outvars)
    for branch in programs_in(equation):
        results = [_worse(a, b) for a, b in zip(results, _call(branch.jaxpr, operands[1:]), strict=True)]
    return results
