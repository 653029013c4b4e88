"""Questions about a program, and the equations that their answers need."""

from dataclasses import dataclass, replace

from jax.extend import core

from duat_jax.transform.calls import scan_of
from duat_jax.transform.keys import Site
from duat_jax.transform.layers import provided_inside, stacks_of
from duat_jax.transform.mark_places import Path
from duat_jax.transform.program import Program, enters

Live = dict[Path, tuple[bool, ...]]
"""The paths of the equations that are needed, each with flags of the results that are."""


@dataclass(frozen=True)
class ProgramQuestion:
    """A question about a program: the marks whose values are provided, and the values that are read.

    Args:
        provided: marks whose value is provided instead of computed.
        linear: those of `provided` that the answer is linear in.
        linearised: activations replaced by `at_zero + slope · z`, with both provided; none of them is in
            `provided`.
        shared: those of them that share their product with its other factor `u`: the sources of `u` enter as
            `factor_slope · u`, with this provided.
        wanted: marks that are read, each before a provided value replaces it.
        value: whether the function's own result is read.
        affine: whether the answer is affine in the argument and in `linear`, and may be carried or transposed so.
        marked: whether the marks stay marks, so that the answer is a function that can be recorded.
    """

    provided: frozenset[Site] = frozenset()
    linear: frozenset[Site] = frozenset()
    linearised: frozenset[Site] = frozenset()
    shared: frozenset[Site] = frozenset()
    wanted: frozenset[Site] = frozenset()
    value: bool = True
    affine: bool = False
    marked: bool = False


def inside(program: Program, question: ProgramQuestion) -> ProgramQuestion:
    """Return a question with the marks of layers replaced by those that stand for all layers inside a scan."""
    if not program.stacks:
        return question
    provided = provided_inside(program, question.provided)
    return replace(
        question,
        provided=frozenset(provided.values()),
        linear=frozenset(provided[site] for site in question.linear),
        linearised=stacks_of(program, question.linearised),
        shared=stacks_of(program, question.shared),
        wanted=stacks_of(program, question.wanted),
    )


def liveness(
    program: Program, question: ProgramQuestion, part: tuple[core.Jaxpr, Path, list[bool]] | None = None
) -> Live:
    """Return the equations that answering a question needs."""
    live: Live = {}
    question = inside(program, question)
    wanted = [program.place(site).path for site in question.wanted]
    leads_to_wanted = {path[:depth] for path in wanted for depth in range(1, len(path) + 1)}

    def visit(jaxpr: core.Jaxpr, path: Path, results: list[bool]) -> list[bool]:
        needed = {v for v, flag in zip(jaxpr.outvars, results, strict=True) if flag and isinstance(v, core.Var)}
        for i in reversed(range(len(jaxpr.eqns))):
            equation, here = jaxpr.eqns[i], (*path, i)
            flags = [v in needed for v in equation.outvars]
            if not any(flags) and here not in leads_to_wanted:
                continue
            site = program.sites.get(here)
            inner = enters(program, equation, here, linear=question.affine)
            if site is not None:
                linearised = site in question.linearised
                operands = [site in question.wanted or not (site in question.provided or linearised)]
                if linearised:
                    needed.add(jaxpr.eqns[program.pre_activation_of(here)].outvars[0])
            elif inner is None:
                operands = [True] * len(equation.invars)
                if (gated := program.gated.get(here)) and gated.activation in question.shared:
                    needed.add(gated.factor)
            else:
                operands = visit(inner.jaxpr, here, flags)
                if equation.primitive.name == "scan":
                    first, carries, *_ = scan_of(equation)
                    while any(operands[first + c] and not flags[c] for c in range(carries)):
                        carried_flags = [flags[c] or operands[first + c] for c in range(carries)]
                        flags = carried_flags + flags[carries:]
                        operands = visit(inner.jaxpr, here, flags)
                    # A carry that is needed at the end is needed at the beginning, read or not.
                    operands[first : first + carries] = flags[:carries]
            live[here] = tuple(flags)
            needed |= {v for v, flag in zip(equation.invars, operands, strict=True) if flag and isinstance(v, core.Var)}
        return [v in needed for v in jaxpr.invars]

    visit(*(part or (program.jaxpr, (), [question.value] * len(program.jaxpr.outvars))))
    return live
