"""Traced functions with marks."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
from jax.extend import core

from duat_jax.errors import UnsupportedProgram
from duat_jax.transform import marks
from duat_jax.transform.calls import CUSTOM_RULES, SubProgram, sub_program
from duat_jax.transform.closed_over import modules_restored
from duat_jax.transform.content import Content, content_of, described
from duat_jax.transform.counted import counted
from duat_jax.transform.keys import Occurrence, Site, of_step
from duat_jax.transform.mark_places import Loop, MarkPlace, Path, order, sites_of


class Gated(NamedTuple):
    """A product of a dynamic parameter and a term's activation that is used nowhere else.

    Args:
        activation: `σ(g)`.
        held: the mark that holds `u`.
        factor: `u` before it is held, a variable of the program in which the product stands.
    """

    activation: Site
    held: Site
    factor: Any


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A traced function: its equations, its marks, and the structure of its result.

    Two that have the same content are equal, so that JAX compiles a question to a function once, however often the
    function is traced.

    Args:
        jaxpr: the equations; the arrays that the function closes over are its `constvars`.
        out_tree: structure of the function's result.
        sites: every mark by its path; one for all steps of a scan.
        places: the place of every mark, in the order of computation; one for each step where these are named.
        around: the paths of all calls and scans that have a mark inside.
        gated: every gated product by its path.
    """

    jaxpr: core.Jaxpr
    out_tree: Any
    sites: dict[Path, Site]
    places: dict[Site, MarkPlace]
    around: frozenset[Path]
    gated: dict[Path, Gated]

    @cached_property
    def content(self) -> Content:
        """The content of the program, independent of the names of its variables."""
        return Content((content_of(self.jaxpr), *map(described, (self.out_tree, tuple(self.places.items())))))

    def __hash__(self) -> int:
        return hash(self.content)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Program) and self.content == other.content)

    def place(self, site: Site) -> MarkPlace:
        """Return the place of a mark, or of a value that a question provides at one.

        Args:
            site: a mark, or a value provided at one.
        """
        mark = Site(marks.PROVIDED_AT.get(site.kind, site.kind), site.key)
        if mark in self.places:
            return self.places[mark]
        place = self.places[self.stacks[mark][0]]
        return place._replace(loops=tuple(loop._replace(step=None) for loop in place.loops))

    @cached_property
    def stacks(self) -> dict[Site, tuple[Site, ...]]:
        """The marks of every step, by the mark that stands for them inside the scan, where their values are stacked."""
        stacks = defaultdict[Site, dict[int, Site]](dict)
        for site, place in self.places.items():
            for loop in place.loops:
                if loop.step is not None:
                    stacks[self.sites[place.path]][loop.step] = site
        return {stack: tuple(steps[step] for step in range(len(steps))) for stack, steps in stacks.items()}

    @cached_property
    def scans_over_layers(self) -> dict[Path, Loop]:
        """The scans in which every step has marks of its own, by path."""
        return {
            place.path[: loop.depth + 1]: loop
            for place in self.places.values()
            for loop in place.loops
            if loop.step is not None
        }

    def by_step(self, path: Path, scopes: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the scopes around an equation, in a scan over layers those of every step.

        Args:
            path: its path.
            scopes: the names of the scopes.
        """
        around = [loop for scan, loop in self.scans_over_layers.items() if path[: len(scan)] == scan]
        if not around:
            return [scopes]
        (loop,) = around
        outside, inside = scopes[: loop.scopes], scopes[loop.scopes :]
        return list(dict.fromkeys((*outside, *of_step(inside, step)) for step in range(loop.length)))

    def each(self, site: Site) -> tuple[Site, ...]:
        """Return the marks for which one stands: itself, or that of every step.

        Args:
            site: a mark, as `sites` has it.
        """
        return self.stacks.get(site, (site,))

    def axis(self, stack: Site) -> int:
        """Return the axis along which the values of a mark for every step are stacked.

        Args:
            stack: the mark that stands for all steps.
        """
        (axis,) = (k for k, loop in enumerate(self.places[self.stacks[stack][0]].loops) if loop.step is not None)
        return axis

    def step(self, path: Path, index: tuple[int, ...]) -> Occurrence:
        """Return the occurrence of a mark.

        Args:
            path: its path.
            index: the step of each scan around it.
        """
        site = self.sites[path]
        if site not in self.stacks:
            return Occurrence(site, index)
        axis = self.axis(site)
        return Occurrence(self.stacks[site][index[axis]], (*index[:axis], *index[axis + 1 :]))

    def lengths(self, site: Site) -> tuple[int, ...]:
        """Return the lengths of the scans around a mark: the leading axes of its value.

        Args:
            site: any mark.
        """
        return tuple(loop.length for loop in self.place(site).loops if loop.step is None)

    def shape(self, site: Site) -> tuple[int, ...]:
        """Return the shape of a mark's value, with one leading axis for each scan around it.

        Args:
            site: any mark.
        """
        return (*self.lengths(site), *self.place(site).shape)

    def steps(self, *kinds: str) -> tuple[Occurrence, ...]:
        """Return every occurrence of the marks of some kinds, in the order of computation.

        Args:
            *kinds: kinds of mark.
        """
        ordered = []
        for site in self.of_kind(*kinds):
            path, loops, *_ = self.places[site]
            lengths = (range(loop.length) if loop.step is None else [loop.step] for loop in loops)
            for index in itertools.product(*lengths):
                free = (step for loop, step in zip(loops, index, strict=True) if loop.step is None)
                ordered.append((order(path, loops, index), Occurrence(site, tuple(free))))
        return tuple(step for _, step in sorted(ordered))

    def of_kind(self, *kinds: str) -> tuple[Site, ...]:
        """Return the marks of some kinds, in program order.

        Args:
            *kinds: kinds of mark, for example `marks.HOLD`.
        """
        return tuple(site for site in self.places if site.kind in kinds)

    def pre_activation_of(self, path: Path) -> int:
        """Return the index, in its own program, of the equation that marks a term's pre-activation.

        Args:
            path: where the term's activation is marked.
        """
        return self.place(Site(marks.PRE_ACTIVATION, self.sites[path].key)).path[-1]


def enters(program: Program, equation: core.JaxprEqn, path: Path, *, linear: bool) -> SubProgram | None:
    """Return the sub-program that is followed equation by equation, or `None` for a single step."""
    # A call with a derivative of its own and no mark inside is one step, unless it is to be transposed.
    if equation.primitive.name in CUSTOM_RULES and not linear and path not in program.around:
        return None
    return sub_program(equation)


def _gated(jaxpr: core.Jaxpr, path: Path, sites: dict[Path, Site]) -> Iterator[tuple[Path, Gated]]:
    marked: dict[Any, tuple[Site, Any]] = {}
    operands = [*jaxpr.outvars, *itertools.chain(*(equation.invars for equation in jaxpr.eqns))]
    uses = Counter(v for v in operands if isinstance(v, core.Var))
    for i, equation in enumerate(jaxpr.eqns):
        if site := sites.get((*path, i)):
            marked[equation.outvars[0]] = site, equation.invars[0]
        elif equation.primitive.name == "mul":
            factors = {marked[v][0].kind: v for v in equation.invars if isinstance(v, core.Var) and v in marked}
            if factors.keys() == {marks.ACTIVATION, marks.HOLD} and uses[factors[marks.ACTIVATION]] == 1:
                yield (*path, i), Gated(marked[factors[marks.ACTIVATION]][0], *marked[factors[marks.HOLD]])
        elif (inner := sub_program(equation)) is not None:
            yield from _gated(inner.jaxpr, (*path, i), sites)


def trace(fn: Callable, x: Any) -> tuple[Program, list[Any]]:
    """Trace a function with marks."""
    # JAX caches traces by the function, and a module's weights may have changed since: a new function object.
    try:
        with modules_restored(fn):
            closed, shape = jax.make_jaxpr(partial(fn), return_shape=True)(x)
    except Exception as error:
        if "from different trace level" not in str(error) and "from a different trace level" not in str(error):
            raise
        raise UnsupportedProgram(
            "the function changes the state of a Flax module, as a recurrent layer, dropout or a batch norm in training"
            " mode does, and that state would outlive the trace: call a clone of it, nnx.clone(module)(x), or put it"
            " into evaluation mode, module.eval(). nnx.jit, nnx.scan and nnx.remat count every module as changed, in"
            " evaluation mode too: call them with nnx.clone(module)"
        ) from error
    program = counted(closed.jaxpr)
    sites, places = sites_of(program)
    around = frozenset(path[:depth] for path in sites for depth in range(1, len(path)))
    gated = dict(_gated(program, (), sites))
    return Program(program, jax.tree.structure(shape), sites, places, around, gated), list(closed.consts)
