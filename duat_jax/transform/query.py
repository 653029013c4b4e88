"""Questions about a recording: linear maps between marks, read-outs pulled back, and replay."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.errors import DuatError
from duat_jax.operators.function import LinearFunction
from duat_jax.operators.shapes import require_floats, shapes_of
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen, evaluate
from duat_jax.transform.keys import Marked, Occurrence, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.program import Program, trace
from duat_jax.transform.recording import KINDS, Dynamics, Recording, Traced

Target = Occurrence | None
"""A value that is read: a stream, pre-activation, term's output or point; the function's result where it is `None`."""


def is_float(x: Any) -> bool:
    """Return whether an array holds floating-point numbers."""
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def question_of(
    recording: Recording, target: Target, *, linear: Iterable[Site] = (), fixed: Iterable[Site] | None = None
) -> ProgramQuestion:
    """Build the question for one target, with terms, offsets and dynamic parameters provided."""
    provided = recording.program.of_kind(marks.HOLD, marks.ACTIVATION, marks.OFFSET) if fixed is None else fixed
    linear = frozenset(linear)
    return ProgramQuestion(
        provided=linear | frozenset(provided),
        linear=linear,
        wanted=frozenset() if target is None else frozenset({target.site}),
        value=target is None,
        affine=True,
    )


def ask(
    recording: Recording,
    question: ProgramQuestion,
    target: Target | list[Occurrence],
    arguments: list[Any],
    provided: Seen,
) -> Any:
    """Evaluate a target, or each of a list, under a question, proved to be affine in everything that flows."""
    if not isinstance(target, list):
        value, seen = answer(recording, question, [target], arguments, provided)
        return value if target is None else seen[target.site][target.iteration]
    _, seen = answer(recording, question, target, arguments, provided)
    return [seen[each.site][each.iteration] for each in target]


def answer(
    recording: Recording, question: ProgramQuestion, targets: Iterable[Target], arguments: list[Any], provided: Seen
) -> tuple[Any, Seen]:
    """Evaluate an affine question after proving that it is affine; every answer passes through here."""
    traced, targets = recording.traced, tuple(targets)
    factors = {site: held for site, held in traced.affinity.factors.items() if site in question.shared}
    upstream = [step for t in targets for step in traced.affinity.upstream(t, factors)] if question.linearised else []
    traced.affinity.require(*(t for t in targets if t is not None), *upstream, value=None in targets)
    values = {
        s: provided[s] if s in provided else recording.seen[s]
        for s in question.provided
        if s in provided or s in recording.seen
    }
    return evaluate(
        traced.program, recording.constants, arguments, question, values, traced.live(question), traced.affinity.flows
    )


SOURCES = (marks.ACTIVATION, marks.TERM_OUTPUT, marks.OFFSET, marks.STREAM)
TARGETS = (marks.PRE_ACTIVATION, marks.TERM_OUTPUT, marks.STREAM, marks.POINT)
"""The kinds of mark that a linear map may begin at and end at; held parameters are neither."""


def _require(recording: Recording, step: Occurrence, kinds: tuple[str, ...], role: str) -> None:
    candidates = recording.program.steps(*kinds)
    if step not in candidates:
        some = ", ".join(f"{s.site.kind} {s}" for s in candidates[:6]) + (", …" if len(candidates) > 6 else "")
        name = f"{step.site.kind} {step}" if isinstance(step, Occurrence) else repr(step)
        raise DuatError(
            f"{name} can't be the {role} of a linear map: choose one of the recording's"
            f" {len(candidates)} marks of the kinds {', '.join(kinds)} ({some})"
        )


def require_affine(recording: Recording, target: Target) -> None:
    """Raise unless a target is affine in everything that flows."""
    if not isinstance(recording, Recording):
        raise DuatError(
            f"the recording is a {type(recording).__name__}: give that of a function at an input, duat.record(fn)(x),"
            " or duat.record(duat.auto(fn))(x) if the function has no marks"
        )
    if target is not None:
        _require(recording, target, TARGETS, "target")
    recording.traced.affinity.require(*([] if target is None else [target]), value=target is None)


def pull_back(
    recording: Recording, question: ProgramQuestion, target: Target | list[Occurrence], readout: Any, provided: Seen
) -> tuple[list[Array | None], Seen]:
    """Pull a read-out of a target, or of several together, back to the argument and all linear marks, in one pass."""
    floats = {i: argument for i, argument in enumerate(recording.arguments) if is_float(argument)}
    linear = {s: provided[s] if s in provided else recording.seen[s] for s in question.linear}

    def read(floats: dict[int, Array], linear: Seen) -> Any:
        arguments = [floats.get(i, argument) for i, argument in enumerate(recording.arguments)]
        return ask(recording, question, target, arguments, provided | linear)

    on_floats, on_marks = jax.linear_transpose(read, floats, linear)(readout)
    return [on_floats.get(i) for i in range(len(recording.arguments))], on_marks


def at_zero(recording: Recording, question: ProgramQuestion, target: Target, provided: Seen) -> Any:
    """Return the contribution of unmarked constants: the target where the argument and all linear marks are zero."""
    zeros = {s: jnp.zeros_like(provided[s] if s in provided else recording.seen[s]) for s in question.linear}
    arguments = [jnp.zeros_like(a) if is_float(a) else a for a in recording.arguments]
    return ask(recording, question, target, arguments, provided | zeros)


def pre_activations_of(recording: Recording, arguments: list[Any], activations: Seen) -> Seen:
    """Compute `B_j x_0 + c_j` of every term, with held parameters as recorded."""
    program = recording.program
    question = ProgramQuestion(
        provided=frozenset(program.of_kind(marks.HOLD, marks.OFFSET, marks.ACTIVATION)),
        wanted=frozenset(program.of_kind(marks.PRE_ACTIVATION)),
        value=False,
        affine=True,
    )
    return answer(recording, question, recording.terms, arguments, activations)[1]


@dataclass(frozen=True)
class Between:
    """The linear dependence of one marked value on another, with everything held at its value on this input.

    Args:
        source: a term's activation or output, an offset or a stream; the function's argument where it is `None`.
        target: the value that is read.
    """

    source: Occurrence | None
    target: Target

    def __call__(self, recording: Recording, change: Any) -> Any:
        """Carry a change forwards from the source to the target."""
        if self.source is not None and self.source == self.target:
            return change
        return _carry(recording, change, self.source, self.target)


@partial(compiled, static_argnames=("source", "target"))
def _carry(recording: Recording, change: Any, source: Occurrence | None, target: Target) -> Any:
    place = (
        None
        if source is None
        else Site(marks.ADDED[marks.STREAM] if source.site.kind == marks.STREAM else source.site.kind, source.site.key)
    )
    linear = frozenset() if place is None else frozenset({place})
    question = question_of(recording, target, linear=linear)

    def read(change: Any) -> Any:
        if place is None or source is None:
            return ask(recording, question, target, jax.tree.leaves(change), {})
        zeros = jnp.zeros_like(recording.seen[source.site])
        return ask(recording, question, target, recording.arguments, {place: zeros.at[source.iteration].set(change)})

    return jax.jvp(read, (jax.tree.map(jnp.zeros_like, change),), (change,))[1]


def linear_map(recording: Recording, source: Occurrence | None = None, target: Target = None) -> LinearFunction:
    """Return the linear map from any marked value to any other.

    Args:
        recording: the recording.
        source: a term's activation or output, an offset or a stream; the function's argument if absent.
        target: a stream, a pre-activation, a term's output or a point; the function's result if absent.

    Returns:
        The map, without its matrix; of a function of several streams, `map.between(r, s)` leads from one to one other.

    Raises:
        DuatError: if there is no such mark, or it is one that is held; if the argument is the source and has whole
            numbers.
        NotAffine: if a mark is missing.
    """
    require_affine(recording, target)
    if source is not None:
        _require(recording, source, SOURCES, "source")
    else:
        require_floats(recording.argument, recording.value if target is None else ())
    start = recording.argument if source is None else recording.at(source)
    return LinearFunction(Between(source, target), recording, shapes_of(start))


def seen_of(dynamics: Dynamics) -> Seen:
    """Return recorded values by mark."""
    return {Site(kind, key): v for kind, values in zip(KINDS, dynamics, strict=True) for key, v in values.items()}


def _require_recorded(program: Program, seen: Seen) -> None:
    missing = [s for s in program.of_kind(marks.HOLD, marks.ACTIVATION, marks.OFFSET) if s not in seen]
    if missing:
        some = ", ".join(f"{s.kind} {s.key}" for s in missing[:4]) + (", …" if len(missing) > 4 else "")
        raise DuatError(f"the dynamics have no value of {some}: replay the function that was recorded")
    if converted := [s for s in program.of_kind(*KINDS) if s in seen and seen[s].dtype != program.place(s).dtype]:
        some = ", ".join(f"{s.kind} {s.key} is {seen[s].dtype} and not {program.place(s).dtype}" for s in converted[:4])
        raise DuatError(f"of the dynamics {some}: replay at an input of the dtype that was recorded")


def replay(fn: Callable[[Any], Any], dynamics: Dynamics) -> Callable[..., Any]:
    """Return the function in which held parameters and terms are provided, not computed: the closed form.

    The theorem says that `replay(fn, dynamics)(x, activations, offsets)` is affine in its three arguments together.
    Before it computes anything, duat checks that your code has this form.  At the recorded input it equals `fn`.

    Args:
        fn: the function that was recorded.
        dynamics: the dynamics of its recording, on this input or on another.

    Returns:
        A function of `x`, of the terms' `activations` and of the `offsets` (by key, as in `Dynamics`; the recorded ones
        where absent).

    Raises:
        DuatError: if there are no dynamics of a recording, or, when called, a mark of the function isn't among them or
            has another shape or dtype there.
        NotAffine: when called, naming each operation that is not linear in what flows through it, its source line and
            the missing mark.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax import hold, record
        >>> fn = lambda x: hold(jnp.exp(x), "gate") * x
        >>> dynamics = record(fn)(jnp.array([0.0, 1.0])).dynamics
        >>> replay(fn, dynamics)(jnp.array([5.0, 0.0])).tolist()
        [5.0, 0.0]

    Source: Wang & Li, Eq. 11 and 34.
    """
    if not isinstance(dynamics, Dynamics):
        raise DuatError(f"a {type(dynamics).__name__} can't be replayed: pass record(fn)(x).dynamics")

    def replayed(x: Any, activations: Marked | None = None, offsets: Marked | None = None) -> Any:
        program, constants = trace(fn, x)
        chosen = dynamics._replace(
            activations=dynamics.activations if activations is None else activations,
            offsets=dynamics.offsets if offsets is None else offsets,
        )
        arguments, in_tree = jax.tree.flatten(x)
        seen = seen_of(chosen)
        _require_recorded(program, seen)
        recording = Recording(constants, arguments, None, seen, Traced(program), in_tree)
        return _value(recording)

    return replayed


@compiled
def _value(recording: Recording) -> Any:
    linear = recording.program.of_kind(marks.ACTIVATION, marks.OFFSET)
    return ask(recording, question_of(recording, None, linear=linear), None, recording.arguments, {})
