"""The coarsest rounding of every value of a program on its way to a result.

A part of a result is carried through its own path alone: a float32 stream that passes a bfloat16 product is rounded to
bfloat16 there, and what reaches the result around that product isn't.
"""

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
from jax.extend import core

from duat_jax.transform.calls import programs_in, scan_of, sub_program
from duat_jax.transform.keys import Site
from duat_jax.transform.layers import provided_inside, stacks_of
from duat_jax.transform.mark_places import Path
from duat_jax.transform.parameters import mantissa_bits
from duat_jax.transform.program import Program


class CoarsestEpsilons(NamedTuple):
    """The coarsest machine epsilon between values and a result, over all paths; zero without a path.

    Args:
        arguments: of every leaf of the argument.
        equations: of the results of every equation, by its path.
    """

    arguments: tuple[float, ...]
    equations: dict[Path, float]

    def at(self, path: Path) -> float:
        """Return the epsilon of an equation's results."""
        return self.equations.get(path, 0.0)

    @property
    def coarsest(self) -> float:
        """The largest epsilon of all."""
        return max((*self.arguments, *self.equations.values()), default=0.0)


def _eps(variable: object) -> float:
    dtype = variable.aval.dtype  # type: ignore[attr-defined]
    return float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.inexact) else 0.0


def eps_of(equation: core.JaxprEqn) -> float:
    """Return the largest epsilon to which an equation rounds: of its results, and of everything inside it."""
    inside = [eps_of(inner) for program in programs_in(equation) for inner in program.jaxpr.eqns]
    bits = mantissa_bits(equation)
    return max([*map(_eps, equation.outvars), *inside, 0.0 if bits is None else 2.0**-bits])


def rounding_of(program: Program, *, provided: Iterable[Site], wanted: Iterable[Site], value: bool) -> CoarsestEpsilons:
    """Return the coarsest epsilon on the way from every value of a program to the values read.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax.transform.program import trace
        >>> fn = lambda x: x[0] + x[1].astype(jnp.bfloat16).astype(jnp.float32)
        >>> program, _ = trace(fn, [jnp.float32(1), jnp.float32(2)])
        >>> [round(-float(jnp.log2(eps))) for eps in rounding_of(program, provided=(), wanted=(), value=True).arguments]
        [23, 7]
    """
    places = [program.place(site).path for site in wanted]
    provided, wanted = frozenset(provided_inside(program, provided).values()), stacks_of(program, wanted)
    leads_to_wanted = {path[:depth] for path in places for depth in range(1, len(path) + 1)}
    equations: dict[Path, float] = {}

    def visit(jaxpr: core.Jaxpr, path: Path, results: list[float]) -> list[float]:
        coarsest: dict[core.Var, float] = {}

        def note(variables: Iterable[object], epsilons: Iterable[float]) -> None:
            for variable, eps in zip(variables, epsilons, strict=True):
                if isinstance(variable, core.Var) and eps:
                    coarsest[variable] = max(coarsest.get(variable, 0.0), eps, _eps(variable))

        note(jaxpr.outvars, results)
        for i in reversed(range(len(jaxpr.eqns))):
            equation, here = jaxpr.eqns[i], (*path, i)
            after = [coarsest.get(v, 0.0) for v in equation.outvars]
            if not any(after) and here not in leads_to_wanted:
                continue
            equations[here] = max(equations.get(here, 0.0), *after)
            site, inner = program.sites.get(here), sub_program(equation)
            if site in wanted:
                note(equation.invars, [_eps(equation.invars[0])])
            if site in provided:
                continue
            if inner is None:
                on_the_way = max(after)
                operands = [max(on_the_way, eps_of(equation)) if on_the_way else 0.0] * len(equation.invars)
            elif equation.primitive.name == "scan":
                first, carries, *_ = scan_of(equation)
                while True:
                    operands = visit(inner.jaxpr, here, after)
                    carried_eps = [max(pair) for pair in zip(after, operands[first : first + carries], strict=False)]
                    if carried_eps == after[:carries]:
                        break
                    after = carried_eps + after[carries:]
            else:
                operands = visit(inner.jaxpr, here, after)
            note(equation.invars, operands)
        return [coarsest.get(v, 0.0) for v in jaxpr.invars]

    jaxpr = program.jaxpr
    arguments = visit(jaxpr, (), [_eps(v) if value else 0.0 for v in jaxpr.outvars])
    return CoarsestEpsilons(tuple(arguments), equations)
