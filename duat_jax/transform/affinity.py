"""Proof that a replayed function is affine, made on its program before anything is computed.

One walk over the program, loops unrolled step by step where marks are inside, gives every value its *flow*: which
sources it depends on (input, terms, offsets, streams), whether it can be nonzero where all of them are zero, and which
operations on the way to it aren't linear in what flows.  The condition on a mark is checked where it stands.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property, reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from duat_jax.errors import DuatError, NotAffine
from duat_jax.transform import marks
from duat_jax.transform.calls import programs_in, scan_of, sub_program
from duat_jax.transform.diagnosis import advice, source_line
from duat_jax.transform.elementwise import why_not_elementwise
from duat_jax.transform.keys import Occurrence, Site
from duat_jax.transform.mark_places import Path
from duat_jax.transform.primitives import adds_a_constant, linear_operands
from duat_jax.transform.program import Program
from duat_jax.transform.provenance import CONSTANT, ZERO, Flows, Provenance

INPUT = "input"
"""The source that stands for the function's argument."""


def _is_float(variable: Any) -> bool:
    return jnp.issubdtype(variable.aval.dtype, jnp.inexact)


def _elementwise_or(a: tuple[bool, ...], b: tuple[bool, ...] | None) -> tuple[bool, ...]:
    return a if b is None else tuple(x or y for x, y in zip(a, b, strict=True))


class Affinity:
    """The flow of every value of a program, found in one walk over it.

    Args:
        program: the traced function.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.flows = Flows()
        self._bits: dict[Any, int] = {}
        self._offences: dict[tuple[str, str], int] = {}
        self._wrong: dict[str, None] = {}
        self._at: dict[Occurrence, Provenance] = {}
        jaxpr = program.jaxpr
        flowing = Provenance(self._bit(INPUT), self._bit(INPUT))
        arguments = [flowing if _is_float(v) else CONSTANT for v in jaxpr.invars]
        self._results = self._visit(jaxpr, (), (), arguments, "an unknown line")

    def _flows(self, target: Occurrence | None) -> list[Provenance]:
        return self._results if target is None else [self.at(target)]

    def at(self, step: Occurrence) -> Provenance:
        """Return the flow of a marked value: a stream, pre-activation, term's output, point or hold."""
        # The flow of a hold is that of its value before it is held.
        if step not in self._at:
            raise DuatError(
                f"{step.site.kind} {step} is no stream, pre-activation, term's output, point or hold of this program"
            )
        return self._at[step]

    def adds_a_constant(self, *targets: Occurrence | None) -> bool:
        """Return whether a value may be nonzero where everything that flows is zero, for lack of a mark."""
        return any(flow.constant for target in targets for flow in self._flows(target))

    def _activations(self, target: Occurrence | None) -> list[Occurrence]:
        sources = reduce(lambda bits, flow: bits | flow.sources, self._flows(target), 0)
        return [s for s in self.sources(sources) if s != INPUT and s.site.kind == marks.ACTIVATION]

    def upstream(self, target: Occurrence | None, factors: Mapping[Site, Site] | None = None) -> tuple[Occurrence, ...]:
        """Return the pre-activations of all terms that a value depends on, directly or through other terms."""
        steps: dict[Occurrence, None] = {}
        waiting = [target]
        while waiting:
            for site, iteration in self._activations(waiting.pop()):
                before = [
                    site._replace(kind=marks.PRE_ACTIVATION),
                    *([factors[site]] if factors and site in factors else []),
                ]
                new = [step for predecessor in before if (step := Occurrence(predecessor, iteration)) not in steps]
                steps |= dict.fromkeys(new)
                waiting += new
        return tuple(steps)

    @cached_property
    def factors(self) -> dict[Site, Site]:
        """Gated activations whose other factor flows linearly, each with the mark that holds that factor."""
        flows: dict[Site, list[Provenance]] = defaultdict(list)
        for step, flow in self._at.items():
            flows[step.site].append(flow)
        return {
            activation: held
            for gated in self.program.gated.values()
            for activation, held in zip(*map(self.program.each, (gated.activation, gated.held)), strict=True)
            if all(flow.sources and not flow.offences for flow in flows[held])
        }

    def require(self, *targets: Occurrence, value: bool = True) -> None:
        """Raise unless the function's result, or some marked values, are affine in everything that flows."""
        reached = [*(self._results if value else ()), *map(self.at, targets)]
        offences = reduce(lambda bits, flow: bits | flow.offences, reached, 0)
        missing = [f"{line}: {sentence}" for (line, sentence), i in self._offences.items() if offences >> i & 1]
        if lines := [*missing, *self._wrong]:
            may_be_placed = any("mark" in line for line in missing)
            remedy = "; duat.auto(fn) places the marks that are missing" if may_be_placed else ""
            reasons = "\n  ".join(dict.fromkeys(lines))
            raise NotAffine(f"the replayed function isn't affine{remedy}:\n  {reasons}")

    def sources(self, bits: int) -> set[Any]:
        """Return a set of sources as steps of activations, offsets and streams, and `INPUT`."""
        return {source for source, i in self._bits.items() if bits >> i & 1}

    def _bit(self, source: Any) -> int:
        return 1 << self._bits.setdefault(source, len(self._bits))

    def _visit(
        self, jaxpr: core.Jaxpr, path: Path, index: tuple[int, ...], arguments: list[Provenance], line: str
    ) -> list[Provenance]:
        flow: dict[Any, Provenance] = dict.fromkeys(jaxpr.constvars, CONSTANT)
        flow |= dict(zip(jaxpr.invars, arguments, strict=True))

        def read(atom: Any) -> Provenance:
            if isinstance(atom, core.Literal):
                return CONSTANT if np.any(np.asarray(atom.val)) else ZERO
            return flow[atom]

        for i, equation in enumerate(jaxpr.eqns):
            here = (*path, i)
            operands = [read(v) for v in equation.invars]
            # Inside a function that a library has jitted, the user's line is that of the call.
            own_line = source_line(equation) or line
            inner = sub_program(equation)
            if here in self.program.sites:
                results = [self._mark(jaxpr, here, index, operands[0], flow, own_line)]
            elif inner is None:
                results = self._apply(equation, here, index, operands, own_line)
            elif equation.primitive.name == "scan":
                results = self._scan(equation, inner.jaxpr, here, index, operands, own_line)
            else:
                results = self._visit(inner.jaxpr, here, index, operands, own_line)
            flow |= dict(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _mark(
        self,
        jaxpr: core.Jaxpr,
        path: Path,
        index: tuple[int, ...],
        operand: Provenance,
        flow: dict[Any, Provenance],
        line: str,
    ) -> Provenance:
        step = self.program.step(path, index)
        site, name = step.site, str(step.site.key)
        match site.kind:
            case marks.HOLD:
                self._at[step] = operand
                return CONSTANT
            case marks.OFFSET:
                if operand.sources:
                    self._wrong[
                        f"{line}: offset({name!r}) depends on what flows ({self._names(operand.sources)}) and would"
                        " claim that part as its own: only a bias is an offset; mark a dynamic parameter with"
                        " hold(x, name)"
                    ] = None
                return Provenance(self._bit(step), self._bit(step))
            case marks.ACTIVATION:
                own = Provenance(self._bit(step), self._bit(step))
                first = self.program.pre_activation_of(path)
                if why := why_not_elementwise(
                    jaxpr,
                    range(first + 1, path[-1]),
                    jaxpr.eqns[first].outvars[0],
                    jaxpr.eqns[path[-1]].invars[0],
                    {v for v, f in flow.items() if f.sources},
                ):
                    self._wrong[
                        f"{line}: the activation of term({name!r}) isn't elementwise in its pre-activation alone, since"
                        f" {why}; hold what mixes numbers or comes from elsewhere, such as an attention pattern"
                    ] = None
                return own
            case marks.TERM_OUTPUT:
                activation = self._bit(step._replace(site=site._replace(kind=marks.ACTIVATION)))
                self._at[step] = operand
                if why := self._why_not_its_own(operand, activation):
                    self._wrong[f"{line}: the outer map of term({name!r}) {why}"] = None
                return operand
            case marks.STREAM:
                self._at[step] = operand
                bit = self._bit(step)
                return Provenance(operand.sources | bit, bit, operand.constant, operand.offences)
            case _:
                self._at[step] = operand
                return operand

    def _why_not_its_own(self, operand: Provenance, activation: int) -> str | None:
        if operand.offences:
            return "isn't linear in the activation: " + "; ".join(
                f"{line}: {sentence}" for (line, sentence), i in self._offences.items() if operand.offences >> i & 1
            )
        if foreign := operand.sources & ~activation:
            return f"adds what doesn't come from the activation ({self._names(foreign)}): add it after the term"
        if operand.constant:
            return "adds a constant to the activation's own part: add it after the term, marked with offset(b, name)"
        return None

    def _names(self, bits: int) -> str:
        names = sorted({s if s == INPUT else f"{s.site.kind} {str(s.site.key)!r}" for s in self.sources(bits)})
        return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")

    def _scan(
        self,
        equation: core.JaxprEqn,
        body: core.Jaxpr,
        here: Path,
        index: tuple[int, ...],
        operands: list[Provenance],
        line: str,
    ) -> list[Provenance]:
        first, carries, length, reverse, _ = scan_of(equation)
        stacked = [ZERO] * (len(body.outvars) - carries)
        carried = operands[first : first + carries]

        def note(inputs: list[Provenance], results: list[Provenance]) -> None:
            flows = self.flows
            flows.operands[here] = _elementwise_or(tuple(f.sources > 0 for f in inputs), flows.operands.get(here))
            flows.results[here] = _elementwise_or(tuple(f.sources > 0 for f in results), flows.results.get(here))

        def run(step: tuple[int, ...]) -> list[Provenance]:
            inputs = [*operands[:first], *carried, *operands[first + carries :]]
            results = self._visit(body, here, step, inputs, line)
            note(inputs, results)
            return results

        if here in self.program.around:
            # Every step has marks of its own.
            for step in range(length):
                results = run((*index, length - 1 - step if reverse else step))
                carried = results[:carries]
                stacked = [a | b for a, b in zip(stacked, results[carries:], strict=True)]
        else:
            # All steps have the same sources: the join over all of them.
            while True:
                results = run(index)
                stacked = [a | b for a, b in zip(stacked, results[carries:], strict=True)]
                joined = [a | b for a, b in zip(carried, results[:carries], strict=True)]
                if joined == carried:
                    break
                carried = joined
        note([*operands[:first], *carried, *operands[first + carries :]], [*carried, *stacked])
        return [*carried, *stacked]

    def _apply(
        self, equation: core.JaxprEqn, here: Path, index: tuple[int, ...], operands: list[Provenance], line: str
    ) -> list[Provenance]:
        name, outputs = equation.primitive.name, equation.outvars
        flowing = [k for k, operand in enumerate(operands) if operand.sources]
        if not flowing:
            zeros = [k for k, operand in enumerate(operands) if not operand.constant]
            factors = linear_operands(equation, zeros)
            vanishes = factors and set(factors) <= set(zeros) and not adds_a_constant(equation)
            return [ZERO if vanishes else CONSTANT] * len(outputs)
        combined = reduce(Provenance.__or__, operands)
        if name in ("cond", "shard_map") and flowing[0] >= (name == "cond"):
            skipped = int(name == "cond")
            # No mark is inside, so any unique path will do.
            branches = [
                self._visit(inner.jaxpr, (*here, -1 - k), index, operands[skipped:], line)
                for k, inner in enumerate(programs_in(equation))
            ]
            return [reduce(Provenance.__or__, flows) for flows in zip(*branches, strict=True)]
        together = linear_operands(equation, flowing)
        if together is None or not set(flowing) <= set(together) or not all(map(_is_float, outputs)):
            # A follow-on error isn't an offence of its own.
            offences = combined.offences
            if not all(operands[k].offences for k in flowing) or not offences:
                # One operation is one offence, however often a loop repeats it.
                offences |= 1 << self._offences.setdefault((line, advice(equation)), len(self._offences))
            return [combined._replace(constant=True, offences=offences)] * len(outputs)
        result = reduce(Provenance.__or__, (operands[k] for k in together))
        return [result._replace(constant=result.constant or adds_a_constant(equation))] * len(outputs)
