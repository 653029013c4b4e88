"""What a difference of two inputs needs of a program: what moves, whose change is asked for, and what may jump.

A value *moves* where it depends on the argument.  A floating-point value that moves has a change, which flows on.
Whole numbers, truth values and what chooses by them have none: they are held, and where they moved their part is named.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from duat_jax.errors import UnsupportedProgram
from duat_jax.transform.diagnosis import source_line
from duat_jax.transform.keys import Site
from duat_jax.transform.normalisers import Normaliser, normalisers
from duat_jax.transform.primitives import (
    REFUSED,
    SubProgram,
    linear_operands,
    programs_in,
    scan_of,
    scopes_of,
    sub_program,
)
from duat_jax.transform.program import Path, Program
from duat_jax.transform.secants import CLOSED, SCALES

BILINEAR = frozenset(("mul", "dot_general", "conv_general_dilated", "ragged_dot_general"))
"""Products of two operands."""

TREES = {"reduce_max": "max", "reduce_min": "min", "reduce_prod": "mul"}
"""What is computed over axes as a tree of a function of two arguments, and which."""

WINDOWS = {"reduce_window_max": "max", "reduce_window_min": "min"}
"""The same over windows."""

ORDERED = frozenset(("sort", "top_k"))
"""What brings entries into another order."""

STEPS = frozenset(("sign", "floor", "ceil", "round", "nextafter"))
"""What is constant but for jumps."""

FOLLOWED = frozenset(
    (*BILINEAR, *TREES, *WINDOWS, *ORDERED, *STEPS, *CLOSED, *SCALES, "div", "integer_pow", "stop_gradient")
)
"""What is followed besides what is linear, calls, scans and branches."""


def is_float(v: Any) -> bool:
    """Return whether a variable holds floating-point numbers.

    Args:
        v: a variable or a literal.
    """
    return jnp.issubdtype(v.aval.dtype, jnp.inexact)


def branches_of(equation: core.JaxprEqn, here: Path) -> list[tuple[SubProgram, Path]]:
    """Return the branches of a `cond`, and paths that nothing else has.

    Args:
        equation: the `cond`.
        here: where it stands.
    """
    return [(branch, (*here, -1 - k)) for k, branch in enumerate(programs_in(equation))]


@dataclass
class Plan:
    """What a difference needs of each program within a program, by where it stands.

    Args:
        moving: the variables that move, and whether something before them may jump.
        wanted: the variables whose change is asked for.
        normalisers: the equations that compute a softmax or its like.
        jumps: the equations at which something may jump, and how its part is called.
        marks: the marks of floating-point values that move, and what their values look like, step by step in scans.
    """

    moving: dict[Path, dict[Any, bool]] = field(default_factory=dict)
    wanted: dict[Path, set[Any]] = field(default_factory=dict)
    normalisers: dict[Path, dict[int, Normaliser]] = field(default_factory=dict)
    jumps: dict[Path, str] = field(default_factory=dict)
    marks: dict[Site, jax.ShapeDtypeStruct] = field(default_factory=dict)


def make_plan(program: Program, held: frozenset[Site]) -> Plan:
    """Return what the difference of a program's result needs.

    Args:
        program: the traced function.
        held: the marks whose change doesn't flow on.

    Raises:
        UnsupportedProgram: naming every operation that isn't followed, and its source line.
    """
    planner = _Planner(program, held)
    planner.move(SubProgram(program.jaxpr, ()), (), [False] * len(program.jaxpr.invars))
    planner.want(program.jaxpr, (), Around((), None), [True] * len(program.jaxpr.outvars))
    if planner.refused:
        raise UnsupportedProgram(
            "the difference of two inputs isn't followed through\n  " + "\n  ".join(planner.refused)
        )
    return planner.plan


Moves = bool | None
"""Of a value that moves, whether something before it may jump; `None` for one that stays."""


def _join(flags: Iterable[Moves]) -> Moves:
    moving = [flag for flag in flags if flag is not None]
    return any(moving) if moving else None


class Around(NamedTuple):
    """What is around a program within a program.

    Args:
        scope: the `jax.named_scope`s.
        line: the line that calls it; what a library's function consists of has no line of its own.
    """

    scope: tuple[str, ...]
    line: str | None


class _Planner:
    def __init__(self, program: Program, held: frozenset[Site]) -> None:
        self.program, self.held, self.plan = program, held, Plan()
        self.refused: dict[str, None] = {}

    def move(self, program: SubProgram, path: Path, arguments: Sequence[Moves]) -> list[Moves]:
        """Find what moves, forwards; return which results do."""
        jaxpr = program.jaxpr
        moving = {v: flag for v, flag in zip(jaxpr.invars, arguments, strict=True) if flag is not None}
        self.plan.moving[path] = moving
        for i, equation in enumerate(jaxpr.eqns):
            operands = [None if isinstance(v, core.Literal) else moving.get(v) for v in equation.invars]
            if _join(operands) is not None:
                results = self._moved(equation, (*path, i), operands)
                moving |= {v: flag for v, flag in zip(equation.outvars, results, strict=True) if flag is not None}
        return [None if isinstance(v, core.Literal) else moving.get(v) for v in jaxpr.outvars]

    def _moved(self, equation: core.JaxprEqn, here: Path, operands: list[Moves]) -> list[Moves]:
        name, inner, site = equation.primitive.name, sub_program(equation), self.program.sites.get(here)
        if site is not None and is_float(equation.outvars[0]):
            aval: Any = equation.outvars[0].aval
            self.plan.marks[site] = jax.ShapeDtypeStruct((*self.program.lengths(site), *aval.shape), aval.dtype)
        if inner is not None and name != "scan":
            return self.move(inner, here, operands)
        if inner is not None:
            first, carries, *_ = scan_of(equation)
            while True:
                results = self.move(inner, here, operands)
                before = operands[first : first + carries]
                carried = [_join(pair) for pair in zip(before, results, strict=False)]
                if carried == before:
                    return results
                operands = [*operands[:first], *carried, *operands[first + carries :]]
        if name == "cond":
            each = [self.move(branch, at, operands[1:]) for branch, at in branches_of(equation, here)]
            return [_join(flags) if operands[0] is None else True for flags in zip(*each, strict=True)]
        return [bool(_join(operands)) or self._jumps(equation, operands)] * len(equation.outvars)

    def _jumps(self, equation: core.JaxprEqn, operands: Sequence[Moves]) -> bool:
        chooses = any(flag is not None and not is_float(v) for v, flag in zip(equation.invars, operands, strict=True))
        return chooses or equation.primitive.name in STEPS | ORDERED

    def want(self, jaxpr: core.Jaxpr, path: Path, around: Around, results: Sequence[bool]) -> list[bool]:
        """Find whose change is asked for, backwards; return which arguments' is."""
        moving, found = self.plan.moving[path], normalisers(jaxpr)
        self.plan.normalisers[path] = found
        wanted = self.plan.wanted[path] = {
            v
            for v, flag in zip(jaxpr.outvars, results, strict=True)
            if flag and not isinstance(v, core.Literal) and v in moving and is_float(v)
        }
        for i in reversed(range(len(jaxpr.eqns))):
            equation, here = jaxpr.eqns[i], (*path, i)
            flags = [v in wanted for v in equation.outvars]
            if not any(flags):
                continue
            inside = Around((*around.scope, *scopes_of(equation)), source_line(equation) or around.line)
            if i in found:
                asked = {found[i].scores}
                if moving[found[i].scores]:
                    self._name(found[i].kind, here, inside)
            else:
                operands = self._asked(equation, here, inside, flags)
                asked = {
                    v
                    for v, flag in zip(equation.invars, operands, strict=True)
                    if flag and not isinstance(v, core.Literal)
                }
            wanted |= {v for v in asked if v in moving and is_float(v)}
        return [v in wanted for v in jaxpr.invars]

    def _asked(self, equation: core.JaxprEqn, here: Path, around: Around, flags: list[bool]) -> list[bool]:
        """Return of which operands the change is asked for."""
        name, inner = equation.primitive.name, sub_program(equation)
        moving = self.plan.moving[here[:-1]]
        if here in self.program.sites:
            return [self.program.sites[here] not in self.held]
        if inner is not None and name == "scan":
            first, carries, *_ = scan_of(equation)
            while True:
                operands = self.want(inner.jaxpr, here, around, flags)
                carried = [a or b for a, b in zip(flags, operands[first : first + carries], strict=False)]
                if carried == flags[:carries]:
                    return operands
                flags = carried + flags[carries:]
        if inner is not None:
            return self.want(inner.jaxpr, here, around, flags)
        moves = [None if isinstance(v, core.Literal) else moving.get(v) for v in equation.invars]
        if name == "cond":
            if moves[0] is not None:
                self._name(name, here, around)
            each = [self.want(branch.jaxpr, at, around, flags) for branch, at in branches_of(equation, here)]
            return [False, *map(any, zip(*each, strict=True))]
        if self._jumps(equation, moves):
            self._name(name, here, around)
        flowing = [
            k
            for k, (v, flag) in enumerate(zip(equation.invars, moves, strict=True))
            if flag is not None and is_float(v)
        ]
        if not flowing or name in STEPS:
            return [False] * len(moves)
        self._check(equation, flowing, moves, around)
        return [k in flowing for k in range(len(moves))]

    def _name(self, name: str, here: Path, around: Around) -> None:
        place = f"{name} at {around.line}" if around.line else name
        self.plan.jumps[here] = f"{'.'.join(around.scope)}: {place}" if around.scope else place

    def _check(self, equation: core.JaxprEqn, flowing: list[int], moves: list[Moves], around: Around) -> None:
        """Note an equation that has no rule."""
        name = equation.primitive.name
        together = linear_operands(equation, flowing)
        linear = together is not None and set(flowing) <= set(together)
        if any(
            jnp.issubdtype(jnp.result_type(v.aval), jnp.complexfloating) for v in (*equation.invars, *equation.outvars)
        ):
            why = "complex numbers aren't followed: take real and imaginary part apart before"
        elif linear or (name in FOLLOWED and not (name in BILINEAR and self._jumps(equation, moves))):
            return
        elif name in REFUSED:
            why = REFUSED[name]
        else:
            why = "it has no exact difference here: write it with products, sums and elementwise functions"
        self.refused[f"{around.line}: {name}: {why}" if around.line else f"{name}: {why}"] = None
