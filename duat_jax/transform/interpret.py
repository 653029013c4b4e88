"""Evaluation of a program in which some marks' values are provided instead of computed.

*Recording* evaluates with no value provided and reads the marks; *replaying* provides the values of held parameters and
terms.  A mark inside a scan has one value per step, stacked along a new leading axis.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from duat_jax.errors import DuatError
from duat_jax.transform import marks
from duat_jax.transform.calls import RECOMPUTED, SubProgram, scan_of
from duat_jax.transform.identities import fence_p, mark_p
from duat_jax.transform.keys import Site
from duat_jax.transform.layers import apart, stacked
from duat_jax.transform.liveness import Live, ProgramQuestion, inside, liveness
from duat_jax.transform.mark_places import Path
from duat_jax.transform.parameters import role_of, scopes_of
from duat_jax.transform.primitives import apply
from duat_jax.transform.program import Program, enters
from duat_jax.transform.provenance import Flows

Seen = dict[Site, jax.Array]


def evaluate(
    program: Program,
    constants: list[Any],
    arguments: list[jax.Array],
    question: ProgramQuestion,
    provided: Mapping[Site, jax.Array],
    live: Live | None = None,
    flows: Flows | None = None,
) -> tuple[Any, Seen]:
    """Evaluate a program, with some marks' values provided and others read."""
    _require_shapes(program, arguments, provided)
    live = liveness(program, question) if live is None else live
    evaluation = _Evaluation(program, inside(program, question), live, flows or Flows())
    outputs, read = evaluation.run(program.jaxpr, (), constants, arguments, stacked(program, provided))
    seen = {site: value for site, value in apart(program, read).items() if site in question.wanted}
    if not question.value:
        return None, seen
    # A result that is a literal of the program isn't an array yet.
    arrays = [output if isinstance(output, jax.Array) else jnp.asarray(output) for output in outputs]
    return jax.tree.unflatten(program.out_tree, arrays), seen


def _require_shapes(program: Program, arguments: list[Any], provided: Mapping[Site, Any]) -> None:
    problems = [
        f"leaf {i} of the argument is {jnp.shape(argument)}, in the program it is {v.aval.shape}"  # type: ignore[attr-defined]
        for i, (v, argument) in enumerate(zip(program.jaxpr.invars, arguments, strict=True))
        if jnp.shape(argument) != v.aval.shape  # type: ignore[attr-defined]
    ]
    problems += [
        f"the value of {site.kind} {site.key} is {jnp.shape(value)}, in the program it is {program.shape(site)}"
        for site, value in provided.items()
        if site in program.places and jnp.shape(value) != program.shape(site)
    ]
    if problems:
        raise DuatError(
            f"{'; '.join(problems[:4])}{'; …' * (len(problems) > 4)}: a recording made under jax.vmap is"
            " queried under jax.vmap too; for other shapes, record the function again"
        )


class _Evaluation:
    def __init__(self, program: Program, question: ProgramQuestion, live: Live, flows: Flows) -> None:
        self.program, self.question, self.live, self.flows = program, question, live, flows

    def run(
        self, jaxpr: core.Jaxpr, path: Path, constants: Sequence, arguments: list, provided: dict[Site, Any]
    ) -> tuple[list, Seen]:
        environment: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        environment |= dict(zip(jaxpr.invars, arguments, strict=True))
        seen: Seen = {}

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else environment.get(atom)

        for i, equation in enumerate(jaxpr.eqns):
            here = (*path, i)
            if here not in self.live:
                continue
            operands = [read(v) for v in equation.invars]
            with self.scopes_of(equation):
                results, inside = self.compute(equation, here, operands, provided, environment)
            seen |= inside
            environment |= dict(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars], seen

    @contextmanager
    def scopes_of(self, equation: core.JaxprEqn) -> Iterator[None]:
        """Open the scopes of an equation again, where its marks stay marks."""
        with ExitStack() as scopes:
            for scope in scopes_of(equation) if self.question.marked else ():
                scopes.enter_context(jax.named_scope(scope))
            yield

    def compute(
        self,
        equation: core.JaxprEqn,
        here: Path,
        operands: list,
        provided: dict[Site, Any],
        environment: dict[Any, Any],
    ) -> tuple[list, Seen]:
        """Return the results of an equation, and the marks read inside it."""
        site = self.program.sites.get(here)
        inner = enters(self.program, equation, here, linear=self.question.affine)
        if site is not None:
            # A marked literal of the program isn't an array yet.
            wanted = site in self.question.wanted
            seen = {site: jnp.asarray(operands[0])} if wanted else {}
            if site in self.question.linearised:
                slope, at_zero = provided[Site(marks.SLOPE, site.key)], provided[Site(marks.AT_ZERO, site.key)]
                z = environment[Site(marks.PRE_ACTIVATION, site.key)]
                return [(at_zero + slope * z).astype(cast(Any, equation.outvars[0].aval).dtype)], seen
            value = self.mark(equation, site, operands[0], provided)
            if site.kind == marks.PRE_ACTIVATION:
                environment[site] = value
            # Where marks stay marks, what ends with one has it too.
            return [value], {site: value} if wanted and self.question.marked else seen
        if inner is None:
            results = apply(equation, operands)
            if (gated := self.program.gated.get(here)) and gated.activation in self.question.shared:
                factor_slope = provided[Site(marks.FACTOR_SLOPE, gated.activation.key)]
                results = [results[0] + factor_slope * environment.get(gated.factor)]
            return results, {}
        if equation.primitive.name == "scan":
            return self.scan(equation, inner, here, operands, provided)
        call = partial(self.run, inner.jaxpr, here, inner.consts, operands, provided)
        if equation.primitive.name in RECOMPUTED and (self.question.affine or self.question.marked):
            # Values inside that don't flow aren't stored for the transpose, which computes them again.
            return cast(tuple[list, Seen], jax.checkpoint(call)())
        return call()

    def mark(self, equation: core.JaxprEqn, site: Site, operand: Any, provided: dict[Site, Any]) -> Any:
        """Return the value of a mark, computed or provided, with its edit applied."""
        value = provided.get(site, operand)
        kept, added = (provided.get(Site(part[site.kind], site.key)) for part in (marks.KEPT, marks.ADDED))
        value = value if kept is None else kept * value
        value = value if added is None else value + added
        if self.question.marked:
            return mark_p.bind(jnp.asarray(value), **role_of(equation))
        return fence_p.bind(value) if site.kind == marks.STREAM else value

    def scan(
        self, equation: core.JaxprEqn, body: SubProgram, here: Path, operands: list, provided: dict[Site, Any]
    ) -> tuple[list, Seen]:
        """Run a scan in two passes: first the results that don't flow, then, given these, those that do."""
        needed = self.live[here]
        # Without steps, stacked results don't flow, even if they are computed from carries that do.
        every = (True,) * len(needed)
        flows_out = self.flows.results.get(here, every) if scan_of(equation)[2] else every
        flowing = [k for k, flag in enumerate(needed) if flag and flows_out[k]]
        steady = [k for k, flag in enumerate(needed) if flag and not flows_out[k]]
        results: dict[int, Any] = {}
        per_step: dict[int, Any] = {}
        if steady:
            question = replace(self.question, wanted=frozenset())
            live = liveness(self.program, question, (body.jaxpr, here, [k in steady for k in range(len(needed))]))
            alone = _Evaluation(self.program, question, live, Flows())
            results, per_step, _ = alone.loop(equation, body, here, operands, provided, steady, {})
        flowing_results, _, seen = self.loop(equation, body, here, operands, provided, flowing, per_step)
        return [(results | flowing_results).get(k) for k in range(len(needed))], seen

    def loop(
        self,
        equation: core.JaxprEqn,
        body: SubProgram,
        here: Path,
        operands: list,
        provided: dict[Site, Any],
        chosen: list[int],
        per_step: dict[int, Any],
    ) -> tuple[dict[int, Any], dict[int, Any], Seen]:
        """Run a scan for some of its results; return them, their carries before each step, and the marks read."""
        first, carries, length, reverse, unroll = scan_of(equation)
        flows_in = self.flows.operands.get(here, (False,) * len(operands))
        carried = [k for k in chosen if k < carries]
        stacked = [k for k in chosen if k >= carries]
        # Linear operands may neither be constants of the scan nor come after other stacked inputs.
        constants = [k for k in range(first) if flows_in[k]]
        inside = {s for s in provided if self.program.place(s).path[: len(here)] == here}
        linear = {s: provided[s] for s in sorted(inside & self.question.linear)}
        nonlinear = {s: provided[s] for s in sorted(inside - self.question.linear)}
        slices = range(first + carries, len(operands))

        def step(carry: tuple, xs: tuple) -> tuple:
            moving, staying = carry
            (linear_slices, linear), (other_slices, nonlinear, steady) = xs
            values = dict(zip(range(first), operands, strict=False)) | dict(zip(constants, staying, strict=True))
            values |= linear_slices | other_slices | {first + c: value for c, value in steady.items()}
            values |= {first + c: value for c, value in zip(carried, moving, strict=True)}
            arguments = [values.get(k) for k in range(len(operands))]
            outputs, seen = self.run(body.jaxpr, here, body.consts, arguments, linear | nonlinear)
            return (tuple(outputs[c] for c in carried), staying), ([outputs[k] for k in stacked], moving, seen)

        init = (tuple(operands[first + c] for c in carried), tuple(operands[k] for k in constants))
        xs = (
            ({k: operands[k] for k in slices if flows_in[k]}, linear),
            ({k: operands[k] for k in slices if not flows_in[k]}, nonlinear, per_step),
        )
        # In a recurrence over what flows, values that don't flow are computed again, not stored for the transpose.
        again = self.question.affine and any(flows_in[k] for k in slices)
        body_of_step = jax.checkpoint(step, prevent_cse=False) if again else step
        scanned: Any = lax.scan(body_of_step, init, xs, length=length, reverse=reverse, unroll=unroll)
        (final, _), (ys, before, seen) = scanned
        results = dict(zip(carried, final, strict=True)) | dict(zip(stacked, ys, strict=True))
        return results, dict(zip(carried, before, strict=True)), seen
