"""Traced functions with marks, and the places of the marks.

Marks are followed into `jit`, `remat`, `custom_jvp`, `custom_vjp` and `scan`.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
from jax.extend import core

from duat_jax.errors import UnsupportedProgram
from duat_jax.transform import marks
from duat_jax.transform.calls import CUSTOM_RULES, SubProgram, programs_in, scan_of, sub_program
from duat_jax.transform.content import Content, content_of, described
from duat_jax.transform.identities import mark_p
from duat_jax.transform.keys import Key, Site, Step
from duat_jax.transform.parameters import role_of, scopes_of

Path = tuple[int, ...]
"""The path of an equation: its index in the program, then in the sub-program, and so on."""


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


class Place(NamedTuple):
    """The place of a mark in a program, and the shape of its value.

    Args:
        path: its path.
        loops: the scans around it, outermost first.
        axes: the number of its value's last axes that are its own; those before come from scans and `vmap`.
        shape: its value's shape in each step of the scans.
    """

    path: Path
    loops: tuple[Loop, ...]
    axes: int
    shape: tuple[int, ...]


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
        sites: every mark by its path.
        places: the place of every mark, in program order.
        around: the paths of all calls and scans that have a mark inside.
        gated: every gated product by its path.
    """

    jaxpr: core.Jaxpr
    out_tree: Any
    sites: dict[Path, Site]
    places: dict[Site, Place]
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

    def place(self, site: Site) -> Place:
        """Return the place of a mark, or of a value that a question provides at one.

        Args:
            site: a mark, or a value provided at one.
        """
        return self.places[Site(marks.PROVIDED_AT.get(site.kind, site.kind), site.key)]

    def lengths(self, site: Site) -> tuple[int, ...]:
        """Return the lengths of the scans around a mark: the leading axes of its value.

        Args:
            site: any mark.
        """
        return tuple(loop.length for loop in self.place(site).loops)

    def shape(self, site: Site) -> tuple[int, ...]:
        """Return the shape of a mark's value, with one leading axis for each scan around it.

        Args:
            site: any mark.
        """
        return (*self.lengths(site), *self.place(site).shape)

    def steps(self, *kinds: str) -> tuple[Step, ...]:
        """Return every occurrence of the marks of some kinds, in the order of computation.

        Args:
            *kinds: kinds of mark.
        """
        ordered = []
        for site in self.of_kind(*kinds):
            path, loops, *_ = self.places[site]
            for index in itertools.product(*(range(loop.length) for loop in loops)):
                order: list[int] = []
                for depth, equation in enumerate(path):
                    order.append(equation)
                    for loop, step in zip(loops, index, strict=True):
                        if loop.depth == depth:
                            order.append(-step if loop.reverse else step)
                ordered.append((order, Step(site, index)))
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
        return self.places[Site(marks.PRE_ACTIVATION, self.sites[path].key)].path[-1]


def enters(program: Program, equation: core.JaxprEqn, path: Path, *, linear: bool) -> SubProgram | None:
    """Return the sub-program that is followed equation by equation, or `None` for a single step.

    A call with a derivative of its own and no mark inside is one step, unless it is to be transposed.

    Args:
        program: the traced function.
        equation: one of its equations.
        path: its path.
        linear: whether the program is going to be transposed.
    """
    if equation.primitive.name in CUSTOM_RULES and not linear and path not in program.around:
        return None
    return sub_program(equation)


def _walk(
    jaxpr: core.Jaxpr, path: Path, scope: tuple[str, ...], loops: tuple[Loop, ...]
) -> Iterator[tuple[str, tuple[str, ...], str, Place]]:
    for i, equation in enumerate(jaxpr.eqns):
        here, around = (*path, i), (*scope, *scopes_of(equation))
        if equation.primitive is mark_p:
            role = role_of(equation)
            shape = equation.outvars[0].aval.shape  # type: ignore[attr-defined]
            yield role["kind"], around, role["name"], Place(here, loops, len(shape) - role["batch_axes"], shape)
        elif (inner := sub_program(equation)) is not None:
            inside = loops
            if equation.primitive.name == "scan":
                scan = scan_of(equation)
                inside = (*loops, Loop(len(path), scan.length, scan.reverse))
            yield from _walk(inner.jaxpr, here, around, inside)
        else:
            for hidden in programs_in(equation):
                for kind, _, name, _ in _walk(hidden.jaxpr, (), (), ()):
                    raise UnsupportedProgram(_hidden(kind, name, equation.primitive.name))


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


def _hidden(kind: str, name: str, primitive: str) -> str:
    why = {
        "while": "which runs its body an unknown number of times: use lax.scan, or a Python loop",
        "cond": "which runs one branch only: use a Python branch, or jnp.where on values marked before",
        "shard_map": "where its value is only a shard: put the mark outside of it",
    }
    otherwise = "whose inside isn't followed: put the mark outside of it"
    return f"the mark {kind}({name!r}) is inside {primitive!r}, {why.get(primitive, otherwise)}"


def trace(fn: Callable, x: Any) -> tuple[Program, list[Any]]:
    """Trace a function with marks.

    Args:
        fn: a pure function of one pytree of arrays.
        x: its argument, or the shapes of it.

    Returns:
        The program, and the arrays that `fn` closes over.

    Raises:
        UnsupportedProgram: where a mark is inside a `while`, a `cond` or another place that can't be followed, or the
            function changes the state of a Flax module.
    """
    # JAX caches traces by the function, and a module's weights may have changed since: a new function object.
    try:
        closed, shape = jax.make_jaxpr(partial(fn), return_shape=True)(x)
    except Exception as error:
        if "from different trace level" not in str(error) and "from a different trace level" not in str(error):
            raise
        raise UnsupportedProgram(
            "the function changes the state of a Flax module, as a recurrent layer, dropout or a batch norm in training"
            " mode does, and that state would outlive the trace: call a clone of it, nnx.clone(module)(x), or put it"
            " into evaluation mode, module.eval(). Under nnx.jit every module changes: take jax.jit, and make the"
            " module anew, since the failed trace may have emptied it"
        ) from error
    number: Counter = Counter()
    sites: dict[Path, Site] = {}
    places: dict[Site, Place] = {}
    for kind, scope, name, place in _walk(closed.jaxpr, (), (), ()):
        begins = marks.PRE_ACTIVATION if kind in marks.OF_A_TERM else kind
        # All marks of one term carry the number of the pre-activation that they begin with.
        number[kind, scope, name] += 1
        site = Site(kind, Key(scope, name, number[begins, scope, name] - 1))
        if site in places or site.key.number < 0:
            raise UnsupportedProgram(
                f"the marks of the terms called {site.key.path!r} are nested or interleaved: move a term that is"
                " inside another term's outer map after it"
            )
        sites[place.path], places[site] = site, place
    around = frozenset(path[:depth] for path in sites for depth in range(1, len(path)))
    gated = dict(_gated(closed.jaxpr, (), sites))
    return Program(closed.jaxpr, jax.tree.structure(shape), sites, places, around, gated), list(closed.consts)
