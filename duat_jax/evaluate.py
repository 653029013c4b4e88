"""Evaluate a program with some marks' values given instead of computed.

*Recording* is evaluating with nothing given and reading the marks; *replaying* is evaluating with held things and terms
given.  A mark inside a scan has one value per step, stacked along a new leading axis.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from duat_jax import marks
from duat_jax.affine import Flows
from duat_jax.program import Live, Path, Program, Question, Site, liveness, sub_program

Seen = dict[Site, jax.Array]


def evaluate(
    program: Program,
    constants: list[Any],
    arguments: list[jax.Array],
    question: Question,
    given: Mapping[Site, jax.Array],
    live: Live | None = None,
    flows: Flows | None = None,
) -> tuple[Any, Seen]:
    """Return a program's result and the marks it is asked for.

    Args:
        program: the traced function.
        constants: the arrays it closes over.
        arguments: the leaves of its argument.
        question: which marks are given and wanted.
        given: the given values.  Where a term's `slope_at_zero` is given, it is the slope of the linearised term
            `σ(z) = at_zero + slope · z`.
        live: the equations that are needed; computed from the question if absent.
        flows: from the affine check: with it, what flows through a scan is kept apart from what doesn't, which is the
            form that `jax.linear_transpose` asks for.

    Returns:
        The function's result (`None` where the question doesn't ask for it), and the values of the wanted marks.
    """
    live = liveness(program, question) if live is None else live
    outputs, seen = _Evaluation(program, question, live, flows or Flows()).run(
        program.jaxpr, (), constants, arguments, dict(given)
    )
    if not question.value:
        return None, seen
    # A result that is a literal of the program isn't an array yet.
    arrays = [output if isinstance(output, jax.Array) else jnp.asarray(output) for output in outputs]
    return jax.tree.unflatten(program.out_tree, arrays), seen


class _Evaluation:
    def __init__(self, program: Program, question: Question, live: Live, flows: Flows) -> None:
        self.program, self.question, self.live, self.flows = program, question, live, flows

    def run(
        self, jaxpr: core.Jaxpr, path: Path, constants: list, arguments: list, given: dict[Site, Any]
    ) -> tuple[list, Seen]:
        environment: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
        environment |= dict(zip(jaxpr.invars, arguments, strict=True))
        pre_activations: dict[str, Any] = {}
        seen: Seen = {}

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, core.Literal) else environment.get(atom)

        for i, equation in enumerate(jaxpr.eqns):
            here = (*path, i)
            if here not in self.live:
                continue
            operands = [read(v) for v in equation.invars]
            site, inner = self.program.sites.get(here), sub_program(equation)
            inside: Seen = {}
            if site is not None:
                if site in self.question.wanted:
                    inside = {site: operands[0]}
                if self.question.linearises(site):
                    slope, at_zero = (given[Site(k, site.key)] for k in (marks.SLOPE_AT_ZERO, marks.AT_ZERO))
                    dtype = cast(Any, equation.outvars[0].aval).dtype
                    results = [(at_zero + slope * pre_activations[site.key]).astype(dtype)]
                else:
                    results = [given[site] if site in given else operands[0]]
                if site.kind == marks.PRE_ACTIVATION:
                    pre_activations[site.key] = results[0]
            elif inner is None:
                parameters = equation.primitive.get_bind_params(equation.params)
                results = equation.primitive.bind(*operands, **parameters)
                results = results if equation.primitive.multiple_results else [results]
            elif equation.primitive.name == "scan":
                results, inside = self.scan(equation, inner, here, operands, given)
            else:
                results, inside = self.run(inner.jaxpr, here, inner.consts, operands, given)
            seen |= inside
            environment |= dict(zip(equation.outvars, results, strict=True))
        return [read(v) for v in jaxpr.outvars], seen

    def scan(
        self, equation: core.JaxprEqn, body: core.ClosedJaxpr, here: Path, operands: list, given: dict[Site, Any]
    ) -> tuple[list, Seen]:
        """Run a scan: first what doesn't flow, then, with that given per step, what flows."""
        needed = self.live[here]
        flows_out = self.flows.results.get(here, (True,) * len(needed))
        flowing = [k for k, flag in enumerate(needed) if flag and flows_out[k]]
        steady = [k for k, flag in enumerate(needed) if flag and not flows_out[k]]
        results: dict[int, Any] = {}
        per_step: dict[int, Any] = {}
        if steady:
            question = replace(self.question, wanted=frozenset())
            live = liveness(self.program, question, (body.jaxpr, here, [k in steady for k in range(len(needed))]))
            alone = _Evaluation(self.program, question, live, Flows())
            results, per_step, _ = alone.loop(equation, body, here, operands, given, steady, {})
        rest, _, seen = self.loop(equation, body, here, operands, given, flowing, per_step)
        return [(results | rest).get(k) for k in range(len(needed))], seen

    def loop(
        self,
        equation: core.JaxprEqn,
        body: core.ClosedJaxpr,
        here: Path,
        operands: list,
        given: dict[Site, Any],
        chosen: list[int],
        per_step: dict[int, Any],
    ) -> tuple[dict[int, Any], dict[int, Any], Seen]:
        """Run a scan for some of its results; return them, the chosen carries before each step, and the marks read."""
        first, carries = equation.params["num_consts"], equation.params["num_carry"]
        flows_in = self.flows.operands.get(here, (False,) * len(operands))
        kept = [k for k in chosen if k < carries]
        stacked = [k for k in chosen if k >= carries]
        # What is linear may be neither a constant of the scan nor come after other stacked inputs.
        constants = [k for k in range(first) if flows_in[k]]
        inside = {s for p, s in self.program.sites.items() if p[: len(here)] == here and s in given}
        linear = {s: given[s] for s in sorted(inside & self.question.linear)}
        held = {s: given[s] for s in sorted(inside - self.question.linear)}
        slices = range(first + carries, len(operands))

        def step(carry: tuple, xs: tuple) -> tuple:
            moving, staying = carry
            (linear_slices, linear), (other_slices, held, steady) = xs
            values = dict(zip(range(first), operands, strict=False)) | dict(zip(constants, staying, strict=True))
            values |= linear_slices | other_slices | {first + c: value for c, value in steady.items()}
            values |= {first + c: value for c, value in zip(kept, moving, strict=True)}
            arguments = [values.get(k) for k in range(len(operands))]
            outputs, seen = self.run(body.jaxpr, here, body.consts, arguments, linear | held)
            return (tuple(outputs[c] for c in kept), staying), ([outputs[k] for k in stacked], moving, seen)

        init = (tuple(operands[first + c] for c in kept), tuple(operands[k] for k in constants))
        xs = (
            ({k: operands[k] for k in slices if flows_in[k]}, linear),
            ({k: operands[k] for k in slices if not flows_in[k]}, held, per_step),
        )
        scanned: Any = lax.scan(
            step,
            init,
            xs,
            length=equation.params["length"],
            reverse=equation.params["reverse"],
            unroll=equation.params["unroll"],
        )
        (final, _), (ys, before, seen) = scanned
        results = dict(zip(kept, final, strict=True)) | dict(zip(stacked, ys, strict=True))
        return results, dict(zip(kept, before, strict=True)), seen
