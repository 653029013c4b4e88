"""A traced function with marks, where each mark stands, and which equations a question about it needs.

Marks are followed into `jit`, `remat`, `custom_jvp`, `custom_vjp` and `scan`.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.extend import core

from duat_jax import marks
from duat_jax.errors import UnsupportedProgram

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Primitives that call one sub-program with their own operands, and the parameter that holds it."""

Path = tuple[int, ...]
"""Where an equation stands: its index in the program, then in the sub-program, and so on."""


class Site(NamedTuple):
    """One mark of a program: its kind and its key, the name, numbered where a name occurs more than once."""

    kind: str
    key: str


Step = tuple[Site, tuple[int, ...]]
"""One occurrence of a mark: the mark, and the step of each scan around it."""


class Loop(NamedTuple):
    """A scan around a mark.

    Args:
        depth: which component of the mark's path is the scan.
        length: its number of steps.
        reverse: whether it runs backwards.
    """

    depth: int
    length: int
    reverse: bool


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A traced function: its equations, its marks, and the structure of its result.

    Args:
        jaxpr: the equations; what the function closes over are its `constvars`.
        out_tree: structure of the function's result.
        sites: every mark by where it stands.
        loops: of every mark, the scans around it.
    """

    jaxpr: core.Jaxpr
    out_tree: Any
    sites: dict[Path, Site]
    loops: dict[Site, tuple[Loop, ...]]

    def lengths(self, site: Site) -> tuple[int, ...]:
        """Return the leading axes of a mark's value that count the steps of the scans around it.

        Args:
            site: any mark.
        """
        return tuple(loop.length for loop in self.loops[site])

    def steps(self, *kinds: str) -> tuple[Step, ...]:
        """Return every single occurrence of the marks of some kinds, in the order in which they are computed.

        Args:
            *kinds: kinds of mark.
        """
        found = []
        for path, site in self.sites.items():
            loops = self.loops[site]
            for index in itertools.product(*(range(loop.length) for loop in loops)) if site.kind in kinds else ():
                order: list[int] = []
                for depth, equation in enumerate(path):
                    order.append(equation)
                    for loop, step in zip(loops, index, strict=True):
                        if loop.depth == depth:
                            order.append(-step if loop.reverse else step)
                found.append((order, (site, index)))
        return tuple(step for _, step in sorted(found))

    def of_kind(self, *kinds: str) -> tuple[Site, ...]:
        """Return the marks of some kinds, in program order.

        Args:
            *kinds: kinds of mark, for example `marks.HOLD`.
        """
        return tuple(site for site in self.loops if site.kind in kinds)


def sub_program(equation: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """Return the program that a call or a scan runs, or `None` for any other equation.

    Args:
        equation: any equation.
    """
    name = equation.primitive.name
    if name != "scan" and name not in CALLS:
        return None
    inner = equation.params["jaxpr" if name == "scan" else CALLS[name]]
    return inner if isinstance(inner, core.ClosedJaxpr) else core.ClosedJaxpr(inner, [])


def _mark(equation: core.JaxprEqn) -> tuple[str, str] | None:
    if equation.primitive.name != "name":
        return None
    prefix, _, rest = equation.params["name"].partition("/")
    kind, _, name = rest.partition("/")
    return (kind, name) if prefix == marks.PREFIX else None


def _jaxprs_in(value: object) -> Iterator[core.Jaxpr]:
    if isinstance(value, core.ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, core.Jaxpr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _jaxprs_in(item)


def _walk(
    jaxpr: core.Jaxpr, path: Path, loops: tuple[Loop, ...]
) -> Iterator[tuple[Path, tuple[str, str], tuple[Loop, ...]]]:
    for i, equation in enumerate(jaxpr.eqns):
        if (mark := _mark(equation)) is not None:
            yield (*path, i), mark, loops
        elif (inner := sub_program(equation)) is not None:
            here = loops
            if equation.primitive.name == "scan":
                here = (*loops, Loop(len(path), equation.params["length"], equation.params["reverse"]))
            yield from _walk(inner.jaxpr, (*path, i), here)
        else:
            for hidden in _jaxprs_in(tuple(equation.params.values())):
                for _, (kind, name), _ in _walk(hidden, (), ()):
                    raise UnsupportedProgram(
                        f"the mark {kind}({name!r}) is inside {equation.primitive.name!r}, which runs its body an"
                        " unknown number of times or on one branch only: use lax.scan, or a Python loop or branch"
                    )


def trace(fn: Callable, x: Any) -> tuple[Program, list[Any]]:
    """Trace a function with marks.

    Args:
        fn: a pure function of one pytree of arrays.
        x: its argument, or the shapes of it.

    Returns:
        The program, and the arrays that `fn` closes over.

    Raises:
        UnsupportedProgram: where a mark is inside a `while` or `cond`.
    """
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(x)
    found = list(_walk(closed.jaxpr, (), ()))
    total = Counter(mark for _, mark, _ in found)
    number: Counter = Counter()
    sites: dict[Path, Site] = {}
    loops: dict[Site, tuple[Loop, ...]] = {}
    for path, (kind, name), around in found:
        number[kind, name] += 1
        # All marks of one term carry the number of the pre-activation that they begin with.
        counted = (marks.PRE_ACTIVATION if kind in marks.OF_A_TERM else kind, name)
        key = name if total[counted] == 1 else f"{name}/{number[counted] - 1}"
        site = Site(kind, key)
        if site in loops:
            raise UnsupportedProgram(
                f"two {kind} marks come out as {key!r}, since repeated names are numbered: give one of them another"
            )
        sites[path], loops[site] = site, around
    return Program(closed.jaxpr, jax.tree.structure(shape), sites, loops), list(closed.consts)


@dataclass(frozen=True)
class Question:
    """What is asked of a program: which marks are given, which are read, and whether the result is.

    Args:
        given: marks whose value is given instead of computed.
        linear: those of `given` that the answer is linear in: terms and offsets.
        wanted: marks that are read, each before a given value replaces it.
        value: whether the function's own result is read.
    """

    given: frozenset[Site] = frozenset()
    linear: frozenset[Site] = frozenset()
    wanted: frozenset[Site] = frozenset()
    value: bool = True

    def linearises(self, site: Site) -> bool:
        """Return whether this activation is `at_zero + slope · z` with a given slope.

        Args:
            site: any mark.
        """
        return site.kind == marks.ACTIVATION and Site(marks.SLOPE_AT_ZERO, site.key) in self.given


Live = dict[Path, tuple[bool, ...]]
"""Of every equation that is needed, which of its results are."""


def liveness(program: Program, question: Question, part: tuple[core.Jaxpr, Path, list[bool]] | None = None) -> Live:
    """Return the equations that answering a question needs.

    Args:
        program: the traced function.
        question: what is asked of it.
        part: a sub-program, where it stands, and which of its results are needed; the whole program if absent.
    """
    live: Live = {}
    wanted = [path for path, site in program.sites.items() if site in question.wanted]
    leads_to_wanted = {path[:depth] for path in wanted for depth in range(1, len(path) + 1)}

    def visit(jaxpr: core.Jaxpr, path: Path, results: list[bool]) -> list[bool]:
        needed = {v for v, flag in zip(jaxpr.outvars, results, strict=True) if flag and isinstance(v, core.Var)}
        for i in reversed(range(len(jaxpr.eqns))):
            equation, here = jaxpr.eqns[i], (*path, i)
            flags = [v in needed for v in equation.outvars]
            if not any(flags) and here not in leads_to_wanted:
                continue
            site, inner = program.sites.get(here), sub_program(equation)
            if site is not None:
                operands = [site in question.wanted or not (site in question.given or question.linearises(site))]
                if question.linearises(site):
                    needed.add(pre_activation(program, jaxpr, path, site.key))
            elif inner is None:
                operands = [True] * len(equation.invars)
            else:
                operands = visit(inner.jaxpr, here, flags)
                if equation.primitive.name == "scan":
                    first, carries = equation.params["num_consts"], equation.params["num_carry"]
                    while any(operands[first + c] and not flags[c] for c in range(carries)):
                        carried = [flags[c] or operands[first + c] for c in range(carries)]
                        flags = carried + flags[carries:]
                        operands = visit(inner.jaxpr, here, flags)
                    # A carry that is needed at the end is needed at the beginning, read or not.
                    operands[first : first + carries] = flags[:carries]
            live[here] = tuple(flags)
            needed |= {v for v, flag in zip(equation.invars, operands, strict=True) if flag and isinstance(v, core.Var)}
        return [v in needed for v in jaxpr.invars]

    visit(*(part or (program.jaxpr, (), [question.value] * len(program.jaxpr.outvars))))
    return live


def pre_activation(program: Program, jaxpr: core.Jaxpr, path: Path, key: str) -> core.Var:
    """Return the variable that holds a term's pre-activation.

    Args:
        program: the traced function.
        jaxpr: the program or sub-program in which the term stands.
        path: where that sub-program stands.
        key: the term's key.
    """
    site = Site(marks.PRE_ACTIVATION, key)
    return next(e.outvars[0] for i, e in enumerate(jaxpr.eqns) if program.sites.get((*path, i)) == site)
