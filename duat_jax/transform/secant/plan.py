"""The plan of a difference of two inputs: values that move, changes that are needed, and possible discontinuities.

A value *moves* where it depends on the argument.  A floating-point value that moves has a change, which flows on.
Whole numbers, truth values and choices by them have none: they are held, and where they moved their part is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core

from duat_jax.errors import UnsupportedProgram
from duat_jax.transform.calls import RECOMPUTED, SubProgram, programs_in, scan_of, sub_program
from duat_jax.transform.definitions import Definitions
from duat_jax.transform.diagnosis import is_of_a_library, source_line
from duat_jax.transform.entrywise import Axes, axes_of_results, own_axes
from duat_jax.transform.keys import Site
from duat_jax.transform.layers import stacks_of
from duat_jax.transform.mark_places import Path
from duat_jax.transform.parameters import scopes_of
from duat_jax.transform.primitives import REFUSED, linear_operands
from duat_jax.transform.program import Program
from duat_jax.transform.secant.moving import Moves, Moving, ProgramVariable, Univariate, begin, together
from duat_jax.transform.secant.normalisers import Normaliser, SumMask, normalisers
from duat_jax.transform.secant.rules import RULES, is_float
from duat_jax.transform.secant.unrecognised_softmax import KEEPS_MASKS, exponentials_of, inverted_operand, is_masked


def branches_of(equation: core.JaxprEqn, here: Path) -> list[tuple[SubProgram, Path]]:
    """Return the branches of a `cond`, each with a unique path."""
    return [(branch, (*here, -1 - k)) for k, branch in enumerate(programs_in(equation))]


@dataclass(eq=False)
class DifferencePlan:
    """The plan of a difference for each program within a program, by its path.

    Args:
        moving: the variables that move.
        wanted: the variables whose change is needed.
        normalisers: the equations that compute a softmax or its like.
        functions: the quotients, products and choices that are a function of a single value, entry by entry.
        discontinuities: the equations at which a value may jump, and the labels of its parts: one, or in a scan over
            layers one for each.
        unrecognised: operations that divide by a sum of exponentials, or take its logarithm, without being recognised
            as a normaliser: their label, and the paths of the exponentials.
        marks: the marks of floating-point values that move, and what their values look like, step by step in scans.
    """

    moving: dict[Path, dict[Any, Moving]] = field(default_factory=dict)
    wanted: dict[Path, set[Any]] = field(default_factory=dict)
    normalisers: dict[Path, dict[int, Normaliser]] = field(default_factory=dict)
    functions: dict[Path, Univariate] = field(default_factory=dict)
    discontinuities: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    unrecognised: dict[str, set[Path]] = field(default_factory=dict)
    marks: dict[Site, jax.ShapeDtypeStruct] = field(default_factory=dict)

    @cached_property
    def exponentials(self) -> frozenset[Path]:
        """The paths of exponentials in unrecognised normalisers."""
        return frozenset[Path]().union(*self.unrecognised.values())


def make_plan(program: Program, held: frozenset[Site]) -> DifferencePlan:
    """Plan the difference of a program's result."""
    planner = _DifferencePlanner(program, stacks_of(program, held))
    arguments = program.jaxpr.invars
    planner.move(
        SubProgram(program.jaxpr, ()), (), [Moving(False, ProgramVariable((), v), own_axes(v)) for v in arguments]
    )
    planner.want(program.jaxpr, (), Around((), None), [True] * len(program.jaxpr.outvars))
    if planner.refused:
        raise UnsupportedProgram(
            "the difference of two inputs isn't followed through\n  " + "\n  ".join(planner.refused)
        )
    return planner.plan


def _chooses(equation: core.JaxprEqn, moves: Sequence[Moves]) -> bool:
    """Return whether an operand that holds no floating-point numbers moves: an index, an order, a truth value."""
    return any(flag is not None and not is_float(v) for v, flag in zip(equation.invars, moves, strict=True))


def _moves(mask: SumMask | None, moving: dict[Any, Moving]) -> bool:
    """Return whether the exponentials of a normaliser are multiplied by factors that move."""
    return mask is not None and mask.counted is None and mask.variable in moving


class Around(NamedTuple):
    """The scope and the source line around a program within a program.

    Args:
        scope: the `jax.named_scope`s.
        line: the line that calls it; operations inside a library's function have no line of their own.
    """

    scope: tuple[str, ...]
    line: str | None


def _label(name: str, around: Around) -> str:
    place = f"{name} at {around.line}" if around.line else name
    return f"{'.'.join(around.scope)}: {place}" if around.scope else place


class _DifferencePlanner:
    def __init__(self, program: Program, held: frozenset[Site]) -> None:
        self.program, self.held, self.plan = program, held, DifferencePlan()
        self.refused: dict[str, None] = {}

    def move(self, program: SubProgram, path: Path, arguments: Sequence[Moves]) -> list[Moves]:
        """Find the moving variables, forwards; return the results that move."""
        jaxpr = program.jaxpr
        moving = {v: flag for v, flag in zip(jaxpr.invars, arguments, strict=True) if flag is not None}
        self.plan.moving[path] = moving
        definitions = Definitions(jaxpr)
        first = definitions.first
        for i, equation in enumerate(jaxpr.eqns):
            operands = [None if isinstance(v, core.Literal) else moving.get(v) for v in equation.invars]
            if any(operands):
                results = self._moved(equation, (*path, i), operands)
                if (
                    *path,
                    i,
                ) not in self.program.sites:  # what is computed twice, as z[0] > 0 and z[0] do, is one value
                    results = [moving.get(first.get(v, v), r) for v, r in zip(equation.outvars, results, strict=True)]
                moving |= {
                    v: flag._replace(masked=flag.masked or is_masked(definitions, jaxpr, v, moving))
                    for v, flag in zip(equation.outvars, results, strict=True)
                    if flag is not None
                }
        return [None if isinstance(v, core.Literal) else moving.get(v) for v in jaxpr.outvars]

    def _moved(self, equation: core.JaxprEqn, here: Path, operands: list[Moves]) -> list[Moves]:
        name, inner, site = equation.primitive.name, sub_program(equation), self.program.sites.get(here)
        if site is not None and is_float(equation.outvars[0]):
            aval: Any = equation.outvars[0].aval
            for each in self.program.each(site):
                self.plan.marks[each] = jax.ShapeDtypeStruct((*self.program.lengths(each), *aval.shape), aval.dtype)
        if inner is not None and name not in {"scan", *RECOMPUTED}:
            return [
                flag and (flag.at(here[:-1], v) if flag.origin.path[: len(here)] == here else flag)
                for v, flag in zip(equation.outvars, self.move(inner, here, operands), strict=True)
            ]
        moving = [flag for flag in operands if flag is not None]
        origin, *further_origins = {flag.origin for flag in moving}
        single = site is None and not further_origins
        along: list[Axes | None] = [None] * len(equation.outvars)
        if single and (inner is None or moving[0].axes == ()):
            along = axes_of_results(equation, [flag and flag.axes for flag in operands])
        if inner is not None or name == "cond":
            return [
                flag
                and (flag.at(here[:-1], v) if axes is None else flag._replace(origin=origin, axes=axes, step=False))
                for v, flag, axes in zip(
                    equation.outvars, self._within(equation, inner, here, operands), along, strict=True
                )
            ]
        jumps = any(flag.jumps for flag in moving) or self._jumps(equation, operands)
        exponentials = exponentials_of(
            equation, here, [flag and flag.exponentials for flag in operands], bool(further_origins)
        )
        constant = all(flag.step for flag in moving) or (name in RULES and RULES[name].constant)
        k = inverted_operand(equation)  # the logarithm or the quotient of a mask of zeros and ones is infinite
        inverted = None if k is None else operands[k]
        masked = (inverted is not None and inverted.step) or (
            name in KEEPS_MASKS and any(flag.masked for flag in moving)
        )
        return [
            Moving(jumps, ProgramVariable(here[:-1], v), own_axes(v), False, exponentials, masked)
            if axes is None
            else Moving(jumps, origin, axes, constant or not is_float(v), exponentials, masked)
            for v, axes in zip(equation.outvars, along, strict=True)
        ]

    def _within(
        self, equation: core.JaxprEqn, inner: SubProgram | None, here: Path, operands: list[Moves]
    ) -> list[Moves]:
        """Find the moving variables of a program that is evaluated apart from the one around it."""
        if inner is None:
            branches = branches_of(equation, here)
            flags_by_branch = [self.move(b, at, begin(b.jaxpr.invars, at, operands[1:])) for b, at in branches]
            index = operands[0] and operands[0]._replace(jumps=True)
            return [together((index, *flags)) for flags in zip(*flags_by_branch, strict=True)]
        invars = inner.jaxpr.invars
        if equation.primitive.name != "scan":
            return self.move(inner, here, begin(invars, here, operands))
        first, carries, *_ = scan_of(equation)
        while True:
            results = self.move(inner, here, begin(invars, here, operands))
            before = operands[first : first + carries]
            carried = [together(pair) for pair in zip(before, results, strict=False)]
            now, then = (
                [flag and (flag.jumps, flag.exponentials, flag.masked) for flag in flags] for flags in (carried, before)
            )
            if now == then:
                return results
            operands = [*operands[:first], *carried, *operands[first + carries :]]

    def _jumps(self, equation: core.JaxprEqn, operands: Sequence[Moves]) -> bool:
        rule = RULES.get(equation.primitive.name)
        masked = any(flag is not None and flag.masked for flag in operands)
        return _chooses(equation, operands) or (rule is not None and (rule.jumps or (rule.bounds and masked)))

    def want(self, jaxpr: core.Jaxpr, path: Path, around: Around, results: Sequence[bool]) -> list[bool]:
        """Find the variables whose change is needed, backwards; return the arguments among them."""
        moving = self.plan.moving[path]
        normalisers_here = {
            i: normaliser
            for i, normaliser in normalisers(jaxpr).items()
            if normaliser.scores in moving and not _moves(normaliser.mask, moving)
        }
        self.plan.normalisers[path] = normalisers_here
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
            own = None if is_of_a_library(jaxpr) else source_line(equation)
            inside = Around((*around.scope, *scopes_of(equation)), own or around.line)
            if i in normalisers_here:
                needed, mask = {normalisers_here[i].scores}, normalisers_here[i].mask
                if moving[normalisers_here[i].scores].jumps or (mask is not None and mask.variable in moving):
                    self._name(normalisers_here[i].kind, here, inside)
            else:
                operands = self._wanted_operands(equation, here, inside, flags)
                needed = {
                    v
                    for v, flag in zip(equation.invars, operands, strict=True)
                    if flag and not isinstance(v, core.Literal)
                }
            wanted |= {v for v in needed if v in moving and is_float(v)}
        return [v in wanted for v in jaxpr.invars]

    def _wanted_operands(self, equation: core.JaxprEqn, here: Path, around: Around, flags: list[bool]) -> list[bool]:
        """Return flags of the operands whose change is needed."""
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
            if (function := self._function_of(equation, here, moves)) is not None:
                self._carry_by(here, function)
            elif moves[0] is not None:
                self._name(name, here, around)
            flags_by_branch = [self.want(branch.jaxpr, at, around, flags) for branch, at in branches_of(equation, here)]
            return [False, *map(any, zip(*flags_by_branch, strict=True))]
        flowing = [
            k
            for k, (v, flag) in enumerate(zip(equation.invars, moves, strict=True))
            if flag is not None and is_float(v)
        ]
        function = self._function_of(equation, here, moves) if flowing else None
        if function is not None:
            self._carry_by(here, function)
            flowing = [k for k in flowing if k not in function.steps]
        elif self._jumps(equation, moves):
            self._name(name, here, around)
        elif (k := inverted_operand(equation)) is not None and (divisor := moves[k]) and divisor.exponentials.summed:
            label = _label(name, around)
            self.plan.unrecognised.setdefault(label, set()).update(divisor.exponentials.places)
        if not flowing or (name in RULES and RULES[name].constant):
            return [False] * len(moves)
        self._check(equation, flowing, moves, around)
        return [k in flowing for k in range(len(moves))]

    def _function_of(self, equation: core.JaxprEqn, here: Path, moves: Sequence[Moves]) -> Univariate | None:
        """Return the single value of which an equation's result is a function, entry by entry, in a way of its own."""
        # A choice by a value that jumps is split over its operands only where they aren't functions of one value:
        # `where(z > 0, z, exp(z) - 1)` has a secant. So do `tanh(z) / z`, without a pole, and a product, whose two
        # parts may cancel.
        (result, *further), name = equation.outvars, equation.primitive.name
        flag = self.plan.moving[here[:-1]].get(result)
        if further or flag is None or flag.step or flag.origin == ProgramVariable(here[:-1], result):
            return None
        steps = tuple(
            k for k, move in enumerate(moves) if move is not None and (move.step or (name == "cond" and k == 0))
        )
        several = name in ("mul", "div") and None not in moves and equation.invars[0] is not equation.invars[1]
        shapes = {equation.invars[k].aval.shape for k in steps} - {(), result.aval.shape}  # type: ignore[attr-defined]
        if not (steps or several) or shapes or not is_float(flag.origin.variable):
            return None
        return Univariate(flag.origin, flag.axes, steps)

    def _carry_by(self, here: Path, function: Univariate) -> None:
        self.plan.functions[here] = function
        self.plan.wanted[function.origin.path].add(function.origin.variable)

    def _name(self, name: str, here: Path, around: Around) -> None:
        scopes = self.program.by_step(here, around.scope)
        self.plan.discontinuities[here] = tuple(_label(name, around._replace(scope=scope)) for scope in scopes)

    def _check(self, equation: core.JaxprEqn, flowing: list[int], moves: list[Moves], around: Around) -> None:
        """Note an equation without a rule."""
        name = equation.primitive.name
        rule, together = RULES.get(name), linear_operands(equation, flowing)
        linear = together is not None and set(flowing) <= set(together)
        if linear:
            return
        if any(
            jnp.issubdtype(jnp.result_type(v.aval), jnp.complexfloating) for v in (*equation.invars, *equation.outvars)
        ):
            why = "only linear maps of complex numbers are followed: take real and imaginary part apart before"
        elif rule is not None and rule.applies(flowing, _chooses(equation, moves)):
            return
        elif name in REFUSED:
            why = REFUSED[name]
        elif name == "shard_map":
            why = "operations on single devices aren't followed: call the function itself, under jax.jit with shardings"
        else:
            why = "it has no exact difference here: write it with products, sums and elementwise functions"
        self.refused[f"{around.line}: {name}: {why}" if around.line else f"{name}: {why}"] = None
