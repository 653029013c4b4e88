"""The difference of a program's results at two inputs: exact, and linear in the inputs' difference.

Every value that moves is computed at both inputs, together with its *change*, which is linear in the change of the
argument.  Transposed, that linear map is what `jax.grad` is for one input.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.blocks_of_steps import scan_in_blocks
from duat_jax.transform.calls import RECOMPUTED, SubProgram, scan_of, sub_program
from duat_jax.transform.identities import fence_p
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Key, Site
from duat_jax.transform.layers import apart, stacked, stacks_of
from duat_jax.transform.mark_places import Path
from duat_jax.transform.marks import STREAM
from duat_jax.transform.primitives import apply
from duat_jax.transform.program import Program
from duat_jax.transform.secant.changed_value import ChangedValue, movement, narrowed, part_of, unchanged, widened
from duat_jax.transform.secant.moving import ProgramVariable
from duat_jax.transform.secant.plan import DifferencePlan, branches_of
from duat_jax.transform.secant.rules import changes, values_of
from duat_jax.transform.secant.softmax import normalised
from duat_jax.transform.secant.univariate import own_secant, univariate_change


class Sources(NamedTuple):
    """The changes that the result's change is linear in, all together.

    Args:
        argument: the change of every leaf of the argument that holds floating-point numbers, by its index.
        marks: the summand added to the change of a mark; of a held mark, its whole change.
        discontinuities: the share of each discontinuity's part that is added, one number by its name.
    """

    argument: dict[int, Array]
    marks: Seen
    discontinuities: dict[str, Array]


class Movement(NamedTuple):
    """Movement of a marked value between both inputs.

    Args:
        change: the first value minus the second.
        middle: the mean of both.
    """

    change: Array
    middle: Array


def carry(
    program: Program,
    plan: DifferencePlan,
    constants: list[Any],
    x: list[Array],
    y: list[Array],
    held: frozenset[Site],
    wanted: frozenset[Site],
    sources: Sources,
) -> tuple[Array, tuple[Array, dict[Site, Any]]]:
    """Return the change of a program's scalar result, its two values, and how the wanted marks moved."""
    arguments = [ChangedValue((a, b), True, sources.argument.get(i)) for i, (a, b) in enumerate(zip(x, y, strict=True))]
    held, wanted = stacks_of(program, held), stacks_of(program, wanted)
    difference = _DifferenceEvaluation(program, plan, held, wanted, sources.discontinuities)
    added = stacked(program, sources.marks)
    (result,), seen = difference.run(SubProgram(program.jaxpr, constants), (), arguments, added)
    values = jnp.stack([jnp.asarray(value) for value in result.both])
    change = jnp.zeros_like(values[0]) if result.change is None else result.change.astype(values.dtype)
    return change, (values, apart(program, seen))


class _DifferenceEvaluation:
    def __init__(
        self,
        program: Program,
        plan: DifferencePlan,
        held: frozenset[Site],
        wanted: frozenset[Site],
        discontinuities: dict[str, Array],
    ) -> None:
        self.program, self.plan, self.held, self.wanted = program, plan, held, wanted
        self.discontinuities, self.of_layer = discontinuities, dict[Path, Array]()
        self.origins: dict[ProgramVariable, ChangedValue | None] = {
            function.origin: None for function in plan.functions.values()
        }

    def run(
        self, program: SubProgram, path: Path, arguments: Sequence[ChangedValue], added: Seen
    ) -> tuple[list[ChangedValue], Seen]:
        jaxpr, wanted, normalisers = program.jaxpr, self.plan.wanted.get(path, ()), self.plan.normalisers.get(path, {})
        environment: dict[Any, ChangedValue] = {
            v: ChangedValue(x) for v, x in zip(jaxpr.constvars, program.consts, strict=True)
        }
        seen: Seen = {}

        def write(variables: Sequence[Any], flows: Sequence[ChangedValue]) -> None:
            for v, flow in zip(variables, flows, strict=True):
                environment[v] = flow = widened(flow)
                if (place := ProgramVariable(path, v)) in self.origins:
                    self.origins[place] = flow

        def read(v: Any) -> ChangedValue:
            return ChangedValue(v.val) if isinstance(v, core.Literal) else environment[v]

        write(jaxpr.invars, arguments)
        for i, equation in enumerate(jaxpr.eqns):
            here = (*path, i)
            operands = [read(v) for v in equation.invars]
            inner, site = sub_program(equation), self.program.sites.get(here)
            needed = any(v in wanted for v in equation.outvars)
            if site is not None or (inner is None and equation.primitive.name != "cond"):
                operands = [narrowed(operand) for operand in operands]
            if not any(operand.moves for operand in operands):
                results = [ChangedValue(value) for value in apply(equation, [operand.value for operand in operands])]
            elif site is not None:
                results = [self._mark(site, operands[0], added, seen)]
            elif inner is not None and equation.primitive.name == "scan":
                results, inside = self._scan(equation, inner, here, operands, added)
                seen |= inside
            elif inner is not None:
                call = partial(self.run, inner, here)
                recomputed = equation.primitive.name in RECOMPUTED
                results, inside = (jax.checkpoint(call) if recomputed else call)(operands, added)
                seen |= inside
            elif equation.primitive.name == "cond" and needed:
                results = self._cond(equation, here, operands, added)
            else:
                results = values_of(equation, operands)
                if here in self.plan.exponentials:
                    seen[distance_at(here)] = _distance(operands[0], results[0])
                if needed:
                    if i in normalisers:
                        scores, mask = narrowed(environment[normalisers[i].scores]), normalisers[i].mask
                        counted = None if mask is None else read(mask.variable)
                        changes_out: Any = [normalised(normalisers[i], scores, counted, results[0], self._jump(here))]
                    elif here in self.plan.functions:
                        origin, axes, steps = self.plan.functions[here]
                        value: Any = self.origins[origin]
                        flow = narrowed(value)
                        changes_out = [univariate_change(equation, operands, results[0], flow, axes, steps)]
                    else:
                        changes_out = changes(equation, operands, results, self._jump(here))
                    for v, result, change in zip(equation.outvars, results, changes_out, strict=True):
                        result.change = change if v in wanted else None
            write(equation.outvars, results)
        return [read(v) for v in jaxpr.outvars], seen

    def _jump(self, here: Path) -> Any:
        if here in self.of_layer:
            return self.of_layer[here]
        labels = self.plan.discontinuities.get(here)
        return None if labels is None else self.discontinuities[labels[0]]

    def _mark(self, site: Site, operand: ChangedValue, added: Seen, seen: dict[Site, Any]) -> ChangedValue:
        if site in self.wanted:
            seen[site] = Movement(operand.moved, operand.middle)
        value, change = operand.value, operand.change
        if site in self.held:
            change = added[site]
        elif change is not None and site in added:
            change = change + added[site]
        if site.kind == STREAM:
            value, change = fence_p.bind(value), None if change is None else fence_p.bind(change)
        return ChangedValue(value, True, change)

    def _scan(
        self, equation: core.JaxprEqn, body: SubProgram, here: Path, operands: list[ChangedValue], added: Seen
    ) -> tuple[list[ChangedValue], Seen]:
        first, carries, length, reverse, unroll = scan_of(equation)
        carried = body.jaxpr.invars[first : first + carries]
        before = [self._as(flow, v, here) for flow, v in zip(operands[first:], carried, strict=False)]
        inside = {s: a for s, a in added.items() if self.program.place(s).path[: len(here)] == here}
        of_layers = {
            path: jnp.stack([self.discontinuities[label] for label in labels])
            for path, labels in self.plan.discontinuities.items()
            if here in self.program.scans_over_layers and path[: len(here)] == here and len(labels) > 1
        }

        def step(
            carry: list[ChangedValue], xs: tuple[list[ChangedValue], Seen, Any]
        ) -> tuple[list[ChangedValue], tuple[list[ChangedValue], Seen]]:
            slices, inside, of_layer = xs
            self.of_layer |= of_layer
            results, seen = self.run(body, here, [*operands[:first], *carry, *slices], inside)
            after = [self._as(flow, v, here) for flow, v in zip(results, carried, strict=False)]
            return after, (results[carries:], seen)

        # The first axis of scanned arrays counts steps, that of stacked values the two inputs.
        xs = ([_exchanged(flow) for flow in operands[first + carries :]], inside, of_layers)
        # In a recurrence over what moves, only carries are stored: those between blocks of steps where they are larger
        # than what a step reads, as states beside tokens are; else those of every step, as streams beside weights.
        arguments: Any = zip(body.jaxpr.invars[first:], (*before, *operands[first + carries :]), strict=True)
        sizes = [v.aval.size if flow.moves else 0 for v, flow in arguments]
        state, moving = sum(sizes[:carries]), sum(sizes[carries:])
        large = 0 < moving <= state
        scan = scan_in_blocks if large else lax.scan
        body_of_step = jax.checkpoint(step, prevent_cse=False) if moving and not large else step
        after, (stacked, seen) = scan(body_of_step, before, xs, length=length, reverse=reverse, unroll=unroll)
        return [*after, *map(_exchanged, stacked)], seen

    def _as(self, flow: ChangedValue, v: core.Var, path: Path) -> ChangedValue:
        """Return a flow in the form of a program's argument: with two values and a change where that has them."""
        moves, needed = v in self.plan.moving[path], v in self.plan.wanted.get(path, ())
        value = jnp.stack(flow.both) if moves and not flow.moves else flow.value
        change = unchanged(value[0]) if needed and flow.change is None else flow.change
        return ChangedValue(value, moves, change if needed else None)

    def _cond(
        self, equation: core.JaxprEqn, here: Path, operands: list[ChangedValue], added: Seen
    ) -> list[ChangedValue]:
        index, arguments = operands[0], operands[1:]
        wanted, jump = self.plan.wanted[here[:-1]], self._jump(here)

        def run(branch: SubProgram, at: Path, arguments: list[ChangedValue]) -> list[ChangedValue]:
            results, _ = self.run(branch, at, arguments, added)
            flows = [ChangedValue(jnp.stack(flow.both), True, flow.change) for flow in results]
            for v, flow in zip(equation.outvars, flows, strict=True):
                flow.change = (
                    (unchanged(flow.value[0]) if flow.change is None else flow.change) if v in wanted else None
                )
            return flows

        branches = [partial(run, branch, at) for branch, at in branches_of(equation, here)]
        if not index.moves:
            return lax.switch(index.value, branches, arguments)

        # Only the branches that an input takes are evaluated.
        results_by_input = lax.map(lambda branch_index: lax.switch(branch_index, branches, arguments), index.value)

        def chosen(flow: ChangedValue) -> ChangedValue:
            first, second = (ChangedValue(value, True) for value in flow.value)
            value = jnp.stack([first.value[0], second.value[1]])
            if flow.change is None:
                return ChangedValue(value, True)
            if (function := self.plan.functions.get(here)) is not None:
                origin: Any = self.origins[function.origin]
                of_results = ChangedValue(value, True)
                return ChangedValue(value, True, own_secant(of_results, origin, function.axes, flow.change[0], [index]))
            moved = movement(first.middle, second.middle).astype(flow.change.dtype)
            return ChangedValue(value, True, flow.change.mean(0) + part_of(jump, moved))

        return [chosen(flow) for flow in results_by_input]


def distance_at(place: Path) -> Site:
    """Return the name under which the movement of exponents is reported."""
    return Site("distance", Key((), ".".join(map(str, place)), 0))


def _distance(exponents: ChangedValue, exponentials: ChangedValue) -> Array:
    """Return the largest movement of an exponent between both inputs, of exponentials that aren't zero at both."""
    counted = (exponentials.value != 0).any(0)
    return jnp.where(counted, jnp.abs(exponents.moved), 0).max(initial=0)


def _exchanged(flow: ChangedValue) -> ChangedValue:
    return ChangedValue(jnp.swapaxes(flow.value, 0, 1), True, flow.change) if flow.moves and not flow.apart else flow
