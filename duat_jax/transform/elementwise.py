"""Proof that an activation acts entry by entry, made on its own program at its real shape."""

from collections.abc import Iterable
from typing import Any

from jax.extend import core

from duat_jax.transform import marks
from duat_jax.transform.calls import programs_in, scan_of, sub_program, while_of
from duat_jax.transform.identities import mark_p
from duat_jax.transform.parameters import role_of
from duat_jax.transform.primitives import ELEMENTWISE, KEEPS_PLACE

Why = str
"""The reason why a value isn't elementwise: the operation that mixes entries."""
IN_PLACE = ""
"""The state of an elementwise value: each entry depends on the same entry of the pre-activation alone."""


def why_not_elementwise(
    jaxpr: core.Jaxpr, equations: range, z: core.Var, activation: Any, elsewhere: set[Any]
) -> Why | None:
    """Return why an activation isn't elementwise in its pre-activation alone, or `None` where it is.

    Args:
        jaxpr: the program in which both stand.
        equations: the equations between them.
        z: the pre-activation.
        activation: `σ(z)`.
        elsewhere: the variables of the program that flow.
    """
    shape = z.aval.shape  # type: ignore[attr-defined]
    states: dict[Any, Why] = dict.fromkeys(elsewhere, "it depends on something else that flows") | {z: IN_PLACE}
    _visit(jaxpr, equations, states, shape)
    return None if isinstance(activation, core.Literal) else states.get(activation) or None


def _visit(jaxpr: core.Jaxpr, equations: Iterable[int], states: dict[Any, Why], shape: tuple[int, ...]) -> None:
    """Extend the states of a program's variables; variables independent of the pre-activation have none."""
    for i in equations:
        equation = jaxpr.eqns[i]
        operands = [None if isinstance(v, core.Literal) else states.get(v) for v in equation.invars]
        for v in equation.outvars:
            states.pop(v, None)
        if equation.primitive is mark_p and role_of(equation)["kind"] == marks.OFFSET:
            states[equation.outvars[0]] = f"it contains offset({role_of(equation)['name']!r})"
        elif any(state is not None for state in operands) or sub_program(equation):
            results = _results(equation, operands, shape)
            states |= {v: state for v, state in zip(equation.outvars, results, strict=True) if state is not None}


def _results(equation: core.JaxprEqn, operands: list[Why | None], shape: tuple[int, ...]) -> list[Why | None]:
    name, outputs = equation.primitive.name, equation.outvars
    if worst := next((state for state in operands if state), None):
        return [worst] * len(outputs)
    if name == "scan":
        return _scan(equation, operands, shape)
    if name == "while":
        return _while(equation, operands, shape)
    if name == "cond":
        return _cond(equation, operands, shape)
    if (inner := sub_program(equation)) is not None:
        return _call(inner.jaxpr, operands, shape)
    # Primitives in KEEPS_PLACE keep every entry's place only where the shape stays the same.
    in_place = name in ELEMENTWISE | KEEPS_PLACE and all(v.aval.shape == shape for v in outputs)  # type: ignore[attr-defined]
    return [IN_PLACE if in_place else f"{name} mixes its entries"] * len(outputs)


def _call(body: core.Jaxpr, operands: list[Why | None], shape: tuple[int, ...]) -> list[Why | None]:
    states = {v: state for v, state in zip(body.invars, operands, strict=True) if state is not None}
    _visit(body, range(len(body.eqns)), states, shape)
    return [None if isinstance(v, core.Literal) else states.get(v) for v in body.outvars]


def _worse(a: Why | None, b: Why | None) -> Why | None:
    return a or b or (IN_PLACE if IN_PLACE in (a, b) else None)


def _loop(body: core.Jaxpr, fixed: list, carried: list, sliced: list, shape: tuple[int, ...]) -> list[Why | None]:
    while True:
        results = _call(body, [*fixed, *carried, *sliced], shape)
        joined = [_worse(a, b) for a, b in zip(carried, results[: len(carried)], strict=True)]
        if joined == carried:
            return [*joined, *results[len(carried) :]]
        carried = joined


def _scan(equation: core.JaxprEqn, operands: list[Why | None], shape: tuple[int, ...]) -> list[Why | None]:
    first, carries, *_ = scan_of(equation)
    fixed, carried, sliced = operands[:first], operands[first : first + carries], operands[first + carries :]
    results = _loop(programs_in(equation)[0].jaxpr, fixed, carried, sliced, shape)
    mixed = "scan goes over its entries"
    if any(state is not None for state in sliced):
        return [mixed] * len(equation.outvars)
    return [*results[:carries], *(None if state is None else mixed for state in results[carries:])]


def _while(equation: core.JaxprEqn, operands: list[Why | None], shape: tuple[int, ...]) -> list[Why | None]:
    condition, body, skipped, first = while_of(equation)
    results = _loop(body, operands[skipped : skipped + first], operands[skipped + first :], [], shape)
    if _call(condition, [*operands[:skipped], *results], shape) != [None]:
        return ["while runs as long as some entry asks for it"] * len(equation.outvars)
    return results


def _cond(equation: core.JaxprEqn, operands: list[Why | None], shape: tuple[int, ...]) -> list[Why | None]:
    if operands[0] is not None:
        return ["cond chooses by its entries"] * len(equation.outvars)
    results: list[Why | None] = [None] * len(equation.outvars)
    for branch in programs_in(equation):
        results = [_worse(a, b) for a, b in zip(results, _call(branch.jaxpr, operands[1:], shape), strict=True)]
    return results
