"""Edits of marked values, with everything after them computed anew."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from duat_jax.errors import DuatError
from duat_jax.operators.shapes import describe
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen, evaluate
from duat_jax.transform.keys import Site
from duat_jax.transform.liveness import ProgramQuestion, liveness
from duat_jax.transform.program import Program, trace
from duat_jax.transform.recording import Recording


class Edit(NamedTuple):
    """An edit of values inside a function: `value ↦ kept · value + added`.

    To set it, keep 0 and add the new value; to scale it, keep the factor; to steer it, add a direction; to take some
    entries from another run, keep `mask` and add `(1 − mask) · other`.

    Args:
        kept: a factor that broadcasts to the value, which is finite where this is 0; 1 if absent.
        added: a summand that broadcasts to it; 0 if absent.
        place: which values of a model, of an edit that `duat.edits.Neurons`, `Heads` or `Stream` made for
            `duat.intervene`; absent for `duat.edit`, which is given the mark beside it.
    """

    kept: Any = None
    added: Any = None
    place: Any = None


def edit(fn: Callable[[Any], Any], edits: Mapping[Site, Edit]) -> Callable[[Any], Any]:
    """Transform a function with marks into one in which marked values are edited.

    At every mark in `edits`, `m ↦ kept · m + added`.  The marks stay, with the edited values: the new function can be
    recorded, and edited again.  It composes with `jit`, `vmap` and `grad`, also with respect to `kept` and `added`.

    A term's output is linear in its activation.  What is added at a point between the two, such as `mlp.neurons`, is no
    part of either: the new function has its `secant`, but is no sum of terms and can't be replayed or unrolled.  What
    is added at the activation itself can.

    Args:
        fn: a pure function of one pytree of arrays, with marks.
        edits: the edit of each mark; arrays that broadcast to its value as `record` gives it: inside a scan
            with a leading axis of its steps.

    Returns:
        A function of the same argument.

    Raises:
        DuatError: when called, naming every edit of a mark that isn't there, or of another shape or dtype than its
            value.
        UnsupportedProgram: when called, where a mark is inside a `while` or `cond`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import Key, Site, term
        >>> from duat_jax.edits import Edit
        >>> fn = lambda x: x + term(jax.nn.relu, 2 * x, "relu")
        >>> edit(fn, {Site("activation", Key((), "relu", 0)): Edit(kept=0, added=5)})(jnp.array([1.0, -1.0])).tolist()
        [6.0, 4.0]
    """
    edits = dict(edits)

    def edited(x: Any) -> Any:
        program, constants = trace(fn, x)
        arguments = jax.tree.leaves(x)
        return _value(program, constants, arguments, _edit_values(program, edits))

    return edited


def run_again(recording: Recording, edits: Mapping[Site, Edit]) -> Any:
    """Return a recorded function's value at its argument with some marked values edited, without tracing it again."""
    program = recording.program
    return _value(program, recording.constants, recording.arguments, _edit_values(program, edits))


@partial(compiled, static_argnames=("program",))
def _value(program: Program, constants: list[Any], arguments: list[Any], provided: Seen) -> Any:
    # A recording reads all marks, also those that the result no longer needs.
    live = liveness(program, ProgramQuestion(wanted=frozenset(program.places)))
    return evaluate(program, constants, arguments, ProgramQuestion(marked=True), provided, live)[0]


def _edit_values(program: Program, edits: Mapping[Site, Edit]) -> Seen:
    """Return the arrays `kept` and `added` of each mark in its shape and dtype; raise for edits that don't fit."""
    values: Seen = {}
    problems = []
    for site, given in edits.items():
        if not isinstance(site, Site) or not isinstance(given, Edit) or given.place is not None:
            problems.append(f"an edit is given as Site(kind, key): Edit(kept, added), not as {site!r}: {given!r}")
            continue
        if site not in program.places:
            problems.append(_absent(program, site))
            continue
        value = jax.ShapeDtypeStruct(program.shape(site), program.place(site).dtype)
        for kinds, field, number in ((marks.KEPT, "kept", given.kept), (marks.ADDED, "added", given.added)):
            if number is None:
                continue
            array = jnp.asarray(number)
            if _fits(array, value):
                values[Site(kinds[site.kind], site.key)] = jnp.broadcast_to(array.astype(value.dtype), value.shape)
            else:
                problems.append(
                    f"`{field}` at {site.kind} {site.key} is {describe(array)}, which doesn't broadcast to the"
                    f" mark's value, {describe(value)}"
                )
    if problems:
        raise DuatError("; ".join(problems))
    return values


def _fits(array: Array, value: jax.ShapeDtypeStruct) -> bool:
    try:
        shape = np.broadcast_shapes(array.shape, value.shape)
    except ValueError:
        return False
    return shape == value.shape and bool(jnp.can_cast(array.dtype, value.dtype, "same_kind"))


def _absent(program: Program, site: Site) -> str:
    if site.kind not in marks.KINDS:
        return f"no kind of mark is called {site.kind!r}: choose one of {', '.join(marks.KINDS)}"
    existing = ", ".join(str(mark.key) for mark in program.of_kind(site.kind)) or "none"
    return f"there is no {site.kind} called {str(site.key)!r} to be edited; the marks of this kind are {existing}"
