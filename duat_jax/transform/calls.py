"""Programs inside of equations: calls, loops, and their operands; with parameters that may change with JAX."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core

from duat_jax.errors import UnsupportedProgram

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Primitives that call one sub-program with their own operands, and the parameter that holds it."""

RECOMPUTED = frozenset(("remat2", "checkpoint"))
"""Calls whose inside is computed again in a transpose, instead of being stored."""

CUSTOM_RULES = frozenset(("custom_jvp_call", "custom_vjp_call"))
"""Calls whose derivative is the user's own."""


def parameter_of(equation: core.JaxprEqn, name: str) -> Any:
    """Return a parameter of an equation."""
    if name not in equation.params:
        raise UnsupportedProgram(
            f"{equation.primitive.name} has no parameter {name!r} in JAX {jax.__version__}: this version of JAX isn't"
            " supported yet; install one of the versions that duat-jax's documentation names"
        )
    return equation.params[name]


class SubProgram(NamedTuple):
    """A program that an equation runs.

    Args:
        jaxpr: its equations.
        consts: the values of its `constvars`.
    """

    jaxpr: core.Jaxpr
    consts: Sequence[Any]


def closed(program: Any) -> SubProgram:
    """Return a program with the values of its constants."""
    # From JAX 0.11 on an open and a closed program are of one class.
    return SubProgram(getattr(program, "jaxpr", program), getattr(program, "consts", ()))


def sub_program(equation: core.JaxprEqn) -> SubProgram | None:
    """Return the program that a call or a scan runs, or `None` for any other equation."""
    name = equation.primitive.name
    if name == "scan":
        return closed(parameter_of(equation, "jaxpr"))
    return closed(parameter_of(equation, CALLS[name])) if name in CALLS else None


def called_name_of(equation: core.JaxprEqn) -> str:
    """Return the name of the function that a call runs, without underscores around it; empty where it has none."""
    return str(equation.params.get("name") or "").strip("_")


class Scan(NamedTuple):
    """The division of a scan's operands and results into constants, carries and stacked values.

    Args:
        consts: how many operands are constants; they come first.
        carries: how many are carried; as many results come first.
        length: number of steps.
        reverse: whether it runs backwards.
        unroll: steps per iteration of the compiled loop.
    """

    consts: int
    carries: int
    length: int
    reverse: bool
    unroll: int


def scan_of(equation: core.JaxprEqn) -> Scan:
    """Return the division of a scan's operands and results."""
    if "ft_in" in equation.params:  # from JAX 0.11 on
        consts, carries, _ = map(len, equation.params["ft_in"].unpack())
    else:
        consts, carries = parameter_of(equation, "num_consts"), parameter_of(equation, "num_carry")
    return Scan(consts, carries, *(parameter_of(equation, name) for name in ("length", "reverse", "unroll")))


def programs_in(equation: core.JaxprEqn) -> list[SubProgram]:
    """Return every program among an equation's parameters."""
    programs: list[SubProgram] = []

    def look(value: Any) -> None:
        if hasattr(value, "eqns"):
            programs.append(closed(value))
        elif isinstance(value, tuple | list):
            for item in value:
                look(item)

    look(tuple(equation.params.values()))
    return programs


def with_programs(equation: core.JaxprEqn, change: Callable[[core.Jaxpr], core.Jaxpr]) -> core.JaxprEqn:
    """Return an equation with another program in the place of each of those that it runs; itself where none differs."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple | list):
            items = [changed(item) for item in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
        if not hasattr(value, "eqns"):
            return value
        before = closed(value).jaxpr
        after = change(before)
        if after is before:
            return value
        return after if value is before else value.replace(jaxpr=after)

    params = {name: changed(value) for name, value in equation.params.items()}
    same = all(value is equation.params[name] for name, value in params.items())
    return equation if same else equation.replace(params=params)


class While(NamedTuple):
    """The programs of a `while`, and its numbers of operands.

    Args:
        condition: the program that decides whether it goes on.
        body: the program of one step.
        of_condition: how many operands are the condition's own; they come first.
        of_body: how many are the body's own; they come next.
    """

    condition: core.Jaxpr
    body: core.Jaxpr
    of_condition: int
    of_body: int


def while_of(equation: core.JaxprEqn) -> While:
    """Return the programs of a `while` and its numbers of operands."""
    condition, body = (closed(parameter_of(equation, name)).jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
    return While(condition, body, parameter_of(equation, "cond_nconsts"), parameter_of(equation, "body_nconsts"))
