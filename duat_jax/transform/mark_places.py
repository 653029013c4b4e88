"""The places of marks in a program, and their identifiers.

Marks are followed into `jit`, `remat`, `custom_jvp`, `custom_vjp` and `scan`.  A scan in which a scope names a number
for each step, such as `layers.0:12`, has each of its marks once for every step, as a loop written out would.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jax.extend import core

from duat_jax.errors import UnsupportedProgram
from duat_jax.transform import marks
from duat_jax.transform.calls import programs_in, scan_of, sub_program
from duat_jax.transform.identities import mark_p
from duat_jax.transform.keys import Key, Site, has_slice, of_step, range_of
from duat_jax.transform.parameters import role_of, scopes_of

Path = tuple[int, ...]
"""The path of an equation: its index in the program, then in the sub-program, and so on."""


class Loop(NamedTuple):
    """A scan around a mark.

    Args:
        depth: which component of the mark's path is the scan.
        length: its number of steps.
        reverse: whether it runs backwards.
        scopes: the number of scopes around it.
        step: the one step in which the mark stands, if it has a mark for every step.
    """

    depth: int
    length: int
    reverse: bool
    scopes: int
    step: int | None = None


class MarkPlace(NamedTuple):
    """The place of a mark in a program, and the shape and dtype of its value.

    Args:
        path: its path.
        loops: the scans around it, outermost first.
        axes: the number of its value's last axes that are its own; those before come from scans and `vmap`.
        shape: its value's shape in each step of the scans.
        dtype: its dtype.
    """

    path: Path
    loops: tuple[Loop, ...]
    axes: int
    shape: tuple[int, ...]
    dtype: Any


def order(path: Path, loops: Iterable[Loop], index: Iterable[int]) -> list[int]:
    """Return when an equation is computed, as numbers that sort so."""
    places = list(path)
    for loop, step in reversed([*zip(loops, index, strict=True)]):
        places.insert(loop.depth + 1, -step if loop.reverse else step)
    return places


class _Mark(NamedTuple):
    kind: str
    scope: tuple[str, ...]
    name: str
    place: MarkPlace


def _walk(jaxpr: core.Jaxpr, path: Path, scope: tuple[str, ...], loops: tuple[Loop, ...]) -> Iterator[_Mark]:
    for i, equation in enumerate(jaxpr.eqns):
        here, around = (*path, i), (*scope, *scopes_of(equation))
        if equation.primitive is mark_p:
            role = role_of(equation)
            value: Any = equation.outvars[0].aval
            place = MarkPlace(here, loops, value.ndim - role["batch_axes"], value.shape, value.dtype)
            yield _Mark(role["kind"], around, role["name"], place)
        elif (inner := sub_program(equation)) is not None:
            inside = loops
            if equation.primitive.name == "scan":
                scan = scan_of(equation)
                inside = (*loops, Loop(len(path), scan.length, scan.reverse, len(around)))
            yield from _walk(inner.jaxpr, here, around, inside)
        else:
            for hidden in programs_in(equation):
                for mark in _walk(hidden.jaxpr, (), (), ()):
                    raise UnsupportedProgram(_hidden(mark.kind, mark.name, equation.primitive.name))


def _hidden(kind: str, name: str, primitive: str) -> str:
    why = {
        "while": "which runs its body an unknown number of times: use lax.scan, or a Python loop",
        "cond": "which runs one branch only: use a Python branch, or jnp.where on values marked before",
        "shard_map": "where its value is only a shard: put the mark outside of it",
    }
    otherwise = "whose inside isn't followed: put the mark outside of it"
    return f"the mark {kind}({name!r}) is inside {primitive!r}, {why.get(primitive, otherwise)}"


def _scans_of_layers(all_marks: Iterable[_Mark]) -> set[Path]:
    """Return the scans in which a scope names a number for each step."""
    scans, in_scope = set(), dict[Path, str]()
    for mark in all_marks:
        for k, scope in enumerate(mark.scope):
            around = [loop for loop in mark.place.loops if loop.scopes <= k]
            inside = mark.place.loops[len(around) :]
            named = range_of(scope)
            if named is None:
                if around and has_slice(scope):
                    raise UnsupportedProgram(
                        f"the scope {scope!r} is in a scan and has a slice, but isn't of the form name.start:stop or"
                        " name.start:stop:step: write it as layers.0:12, or leave the slice out"
                    )
            elif around and len(named[1]) == around[-1].length:
                scans.add(mark.place.path[: around[-1].depth + 1])
            elif inside and len(named[1]) == inside[0].length:
                in_scope[mark.place.path[: inside[0].depth + 1]] = scope
            elif around:
                raise UnsupportedProgram(
                    f"the scope {scope!r} names {len(named[1])} numbers, but the scan around it has"
                    f" {around[-1].length} steps: name one for each"
                )
    for scan, scope in in_scope.items():
        if scan not in scans:
            raise UnsupportedProgram(
                f"the scope {scope!r} is around a scan of as many steps, and gives them no numbers: open it in the"
                " scan's body"
            )
    return scans


def _by_step(mark: _Mark, scans: set[Path]) -> list[_Mark]:
    """Return a mark once for every step of the scan over layers in which it stands."""
    loops = mark.place.loops
    over = [k for k, loop in enumerate(loops) if mark.place.path[: loop.depth + 1] in scans]
    if len(over) > 1:
        raise UnsupportedProgram(
            f"the mark {mark.kind}({mark.name!r}) is in a scan within a scan whose scopes both name numbers for their"
            " steps, as layers.0:12 does: name them in one of the two"
        )
    if not over:
        return [mark]
    (k,) = over
    return [
        mark._replace(
            scope=(*mark.scope[: loops[k].scopes], *of_step(mark.scope[loops[k].scopes :], step)),
            place=mark.place._replace(loops=(*loops[:k], loops[k]._replace(step=step), *loops[k + 1 :])),
        )
        for step in range(loops[k].length)
    ]


def _numbered(all_marks: Iterable[_Mark]) -> list[Site]:
    """Return marks with the numbers of those of one kind, scope and name."""
    number: Counter = Counter()
    sites: dict[Site, None] = {}
    for kind, scope, name, _ in all_marks:
        begins = marks.PRE_ACTIVATION if kind in marks.OF_A_TERM else kind
        # All marks of one term carry the number of the pre-activation that they begin with.
        number[kind, scope, name] += 1
        site = Site(kind, Key(scope, name, number[begins, scope, name] - 1))
        if site in sites or site.key.number < 0:
            raise UnsupportedProgram(
                f"the marks of the terms called {site.key.path!r} are nested or interleaved: move a term that is"
                " inside another term's outer map after it"
            )
        sites[site] = None
    return [*sites]


def sites_of(jaxpr: core.Jaxpr) -> tuple[dict[Path, Site], dict[Site, MarkPlace]]:
    """Return the mark at every path, one for all steps of a scan, and the place of every mark as it is computed."""
    all_marks = list(_walk(jaxpr, (), (), ()))
    scans = _scans_of_layers(all_marks)
    by_step = [(mark, _by_step(mark, scans)) for mark in all_marks]

    def computed(mark: _Mark) -> list[int]:
        return order(mark.place.path, mark.place.loops, (loop.step or 0 for loop in mark.place.loops))

    ordered = sorted(itertools.chain(*(steps for _, steps in by_step)), key=computed)
    places = dict(zip(_numbered(ordered), (mark.place for mark in ordered), strict=True))
    sites = {place.path: site for site, place in places.items()}
    # Inside the scan one mark stands for all steps, with a name that no mark outside has.
    stacked = [mark._replace(name=f"{mark.name} of all layers") for mark, steps in by_step if steps != [mark]]
    sites |= dict(zip((mark.place.path for mark in stacked), _numbered(stacked), strict=True))
    return sites, places
