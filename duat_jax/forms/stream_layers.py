"""A layer of a function of several named streams: from what is marked of each before it to what is marked after it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.errors import DuatError
from duat_jax.forms.completeness import Completeness, entrywise_completeness
from duat_jax.forms.residual_term import ResidualTerm, Term
from duat_jax.operators.function import LinearFunction
from duat_jax.operators.shapes import shapes_of
from duat_jax.transform import marks
from duat_jax.transform.affinity import INPUT
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Occurrence
from duat_jax.transform.query import answer, question_of
from duat_jax.transform.recording import Recording

Marks = tuple[tuple[str, Occurrence], ...] | Occurrence
"""The marks of several streams by their names, or one mark."""


class StreamLayer(NamedTuple):
    """One layer of several streams.

    Args:
        before: the marks of every stream before it, by name.
        terms: its terms, by their pre-activations, in the order of computation.
        after: the marks of every stream after it, by name.
    """

    before: tuple[tuple[str, Occurrence], ...]
    terms: tuple[Occurrence, ...]
    after: tuple[tuple[str, Occurrence], ...]


def has_several_streams(recording: Recording) -> bool:
    """Return whether a function takes several streams and marks them by several names."""
    return len(recording.arguments) > 1 and len({step.site.key.name for step in recording.streams}) > 1


def stream_layer(recording: Recording, i: int) -> StreamLayer:
    """Return a layer of several streams, proved to depend on what is marked before it alone."""
    streams: dict[str, list[Occurrence]] = {}
    for step in recording.streams:
        streams.setdefault(step.site.key.name, []).append(step)
    counts = {name: len(steps) for name, steps in streams.items()}
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{name} {count} times" for name, count in sorted(counts.items()))
        raise DuatError(
            f"of the streams are marked {told}, so that no layer of all is known: mark every stream before the first"
            " layer and after each, stream(x[name], name)"
        )
    layers = min(counts.values(), default=0) - 1
    if not 1 <= i <= layers:
        raise DuatError(
            f"there is no layer {i}: {' and '.join(sorted(counts)) or 'no stream'} are marked {layers + 1} times, and"
            " layer i lies between marks i − 1 and i; mark every stream before the first layer and after each"
        )
    before, after = (tuple((name, streams[name][at]) for name in sorted(streams)) for at in (i - 1, i))
    affinity = recording.traced.affinity
    affinity.require(*(step for _, step in after), value=False)
    written = {source for _, step in after for source in affinity.sources(affinity.at(step).since)}
    terms = tuple(step for step in recording.terms if activation_of(step) in written)
    allowed = [step for _, step in (*before, *after)] + [activation_of(step) for step in terms]
    affinity.require(*terms, value=False)
    for step in (*terms, *(step for _, step in after)):
        if foreign := dependencies(recording, step, allowed):
            raise DuatError(
                f"{step.site.kind} {step} isn't of layer {i} alone, since it depends on {', '.join(foreign)} too: mark"
                " every stream before the first layer and after each, stream(x[name], name)"
            )
    return StreamLayer(before, terms, after)


def dependencies(recording: Recording, target: Occurrence, allowed: Collection[Occurrence]) -> list[str]:
    """Return the names of a few things that a mark depends on since the streams before it and that aren't allowed."""
    affinity = recording.traced.affinity
    foreign = [
        "the input" if s == INPUT else f"{s.site.kind} {s}"
        for s in affinity.sources(affinity.at(target).since)
        if s == INPUT or (s.site.kind != marks.OFFSET and s not in allowed)
    ]
    return sorted(foreign)[:4]


def activation_of(term: Occurrence) -> Occurrence:
    """Return the activation of a term."""
    return Occurrence(term.site._replace(kind=marks.ACTIVATION), term.iteration)


def residual_term_of(recording: Recording, layer: StreamLayer) -> ResidualTerm:
    """Return a layer's path and its terms, as maps between named streams."""

    def carried(source: Marks, target: Marks) -> LinearFunction:
        carry = _Across(layer.before, source, target)
        return LinearFunction(carry, recording, shapes_of(_values(recording.seen, source)))

    return ResidualTerm(
        path=carried(layer.before, layer.after),
        path_bias=_without(recording, layer.before, layer.after, False),
        terms=tuple(
            Term(
                inner=carried(layer.before, term),
                inner_bias=_without(recording, layer.before, term, True),
                outer=carried(activation_of(term), layer.after),
            )
            for term in layer.terms
        ),
    )


def completeness_of_layer(
    recording: Recording, layer: StreamLayer, activate: Callable[[int, Array], Array]
) -> Completeness:
    """Compare a layer's residual term, applied to the streams before it, with those after it, entry by entry."""
    before, after = (_values(recording.seen, step) for step in (layer.before, layer.after))
    found = residual_term_of(recording, layer)
    outputs = [
        term.outer(activate(recording.terms.index(step) + 1, term.inner(before) + term.inner_bias))
        for step, term in zip(layer.terms, found.terms, strict=True)
    ]
    coarsest = recording.traced.rounding(question_of(recording, None)).coarsest
    parts = [found.path(before), found.path_bias, *outputs]
    return entrywise_completeness(after, parts, [coarsest] * len(parts))


@dataclass(frozen=True)
class _Across:
    """The linear dependence of marks on others, with the streams before a layer given."""

    before: tuple[tuple[str, Occurrence], ...]
    source: Marks
    target: Marks

    def __call__(self, recording: Recording, change: Any) -> Any:
        """Carry a change forwards."""
        return _carry(recording, change, self.before, self.source, self.target)


def _steps(of: Marks) -> list[Occurrence]:
    return [of] if isinstance(of, Occurrence) else [step for _, step in of]


def _values(seen: Seen, of: Marks) -> Any:
    """Return the values of marks: of several streams by name."""
    if isinstance(of, Occurrence):
        return seen[of.site][of.iteration]
    return {name: seen[step.site][step.iteration] for name, step in of}


def _given(seen: Seen, of: Marks, values: Any) -> Seen:
    """Return the arrays of marks with these values in their places."""
    leaves = [values] if isinstance(of, Occurrence) else [values[name] for name, _ in of]
    return {
        step.site: seen[step.site].at[step.iteration].set(value) for step, value in zip(_steps(of), leaves, strict=True)
    }


def _read(recording: Recording, target: Marks, provided: Seen) -> Any:
    question = replace(
        question_of(recording, None, linear=provided),
        wanted=frozenset(step.site for step in _steps(target)),
        value=False,
    )
    return _values(answer(recording, question, _steps(target), recording.arguments, provided)[1], target)


@partial(compiled, static_argnames=("before", "source", "target"))
def _carry(recording: Recording, change: Any, before: Marks, source: Marks, target: Marks) -> Any:
    seen = recording.seen
    still = {step.site: jnp.zeros_like(seen[step.site]) for step in (*_steps(before), *_steps(source))}

    def read(change: Any) -> Any:
        return _read(recording, target, still | _given(still, source, change))

    return jax.jvp(read, (jax.tree.map(jnp.zeros_like, change),), (change,))[1]


@partial(compiled, static_argnames=("before", "target", "terms"))
def _without(recording: Recording, before: Marks, target: Marks, terms: bool) -> Any:
    """Return what marks are where the streams before a layer are zero, with the terms on the way or without them."""
    seen = recording.seen
    provided = _given(seen, before, jax.tree.map(jnp.zeros_like, _values(seen, before)))
    activations = [] if terms else recording.program.of_kind(marks.ACTIVATION)
    return _read(recording, target, provided | {site: jnp.zeros_like(seen[site]) for site in activations})
