"""Properties of a value that differs between two inputs."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jax.extend import core

from duat_jax.transform.entrywise import Axes, own_axes
from duat_jax.transform.mark_places import Path
from duat_jax.transform.secant.unrecognised_softmax import Exponentials, joined


class ProgramVariable(NamedTuple):
    """A variable, and the path of its program.

    Args:
        path: the path of the program.
        variable: the variable.
    """

    path: Path
    variable: Any


class Moving(NamedTuple):
    """Properties of a value that differs between the two inputs.

    Args:
        jumps: whether something before it may jump.
        origin: the value of which each of its entries is a function of one entry; the value itself if there is none.
        axes: the axes along which the origin's entries lie.
        step: whether that function is piecewise constant.
        exponentials: those that it is computed from.
        masked: whether it may be infinite at one input alone.
    """

    jumps: bool
    origin: ProgramVariable
    axes: Axes
    step: bool = False
    exponentials: Exponentials = Exponentials()
    masked: bool = False

    def at(self, path: Path, v: Any) -> "Moving":
        """Return the properties of a value as an origin of its own."""
        return self._replace(origin=ProgramVariable(path, v), axes=own_axes(v), step=False)


class Univariate(NamedTuple):
    """An equation whose result is, entry by entry, a function of one value.

    Args:
        origin: the value.
        axes: the axes of the result along which the value's entries lie.
        steps: the operands that are piecewise constant.
    """

    origin: ProgramVariable
    axes: Axes
    steps: tuple[int, ...]


Moves = Moving | None
"""`None` for a value that stays."""


def together(flags: Iterable[Moves]) -> Moves:
    """Return the properties of a value that is one of several."""
    moving = [flag for flag in flags if flag is not None]
    if not moving:
        return None
    jumps, masked = any(flag.jumps for flag in moving), any(flag.masked for flag in moving)
    return moving[0]._replace(jumps=jumps, exponentials=joined(flag.exponentials for flag in moving), masked=masked)


def begin(variables: Sequence[core.Var], path: Path, flags: Sequence[Moves]) -> list[Moves]:
    """Return the moving arguments of a program that is evaluated on its own."""
    return [flag and flag.at(path, v) for v, flag in zip(variables, flags, strict=True)]
