"""The read-out at every stream, and what every head moves from which token to which."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms import decomposition
from duat_jax.forms.decomposition import checked_readout, require_flowing
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Marked, Occurrence, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.query import answer, is_float, pull_back, question_of, require_affine
from duat_jax.transform.recording import Recording

KINDS = (*decomposition.KINDS, marks.STREAM, marks.POINT)
"""The marks that a flow needs."""

ByToken = Callable[[Site, Array], Array]
"""A function that brings the array of a mark to `[tokens, …]`."""


class FlowMarks(NamedTuple):
    """The marks that a flow follows.

    Args:
        rows: those that carry everything together, row by row.
        mixed: those of what heads mix.
        values: those of the values that they mix, if these are asked for.
        patterns: by what heads mix the mark that holds their pattern, if moves are asked for.
    """

    rows: tuple[tuple[Site, ...], ...]
    mixed: tuple[Site, ...]
    values: tuple[Site, ...] = ()
    patterns: tuple[tuple[Site, Site], ...] = ()


class StreamFlow(NamedTuple):
    """A read-out at every row of streams on its way, and what each row is the sum of.

    With `u_i` the read-out pulled back to row `x_i`, token `t` of it has the part `⟨u_i, x_i⟩_t`; it is the sum of
    what came from the same token of the row before it, of what heads moved to it, of its layer's terms, and of biases.
    Where one head reads what another has moved since the row before, it moves that too, and the other one's move is
    what isn't moved further.

    Args:
        streams: the part of every token of each row, `[tokens]`, by its first mark.
        kept: what came past the heads: of the first row from the argument, of each other one from the row before it,
            `[tokens]`.
        heads: what each head brought to a token, without biases, `[tokens, heads]`, by what it mixes.
        terms: what the terms since the row before it wrote, `[tokens]`.
        offsets: what biases and norm offsets since the row before it added, those that heads moved included,
            `[tokens]`.
        values: the linear part of the marked values, a head's value vectors without biases, as they lie.
        on_mixed: the read-out pulled back to what each head mixes, as it lies.
        moves: what came along each entry of a held pattern, as it lies, by what the heads mix.
        after: what terms and offsets after the last row add to the read-out.
        from_others: of what is kept the size of what comes from other tokens, past the heads, in shares of the largest
            part, times differences of the tokens' weights; zero where none are given.
    """

    streams: Marked[Float[Array, "tokens"]]
    kept: Marked[Float[Array, "tokens"]]
    heads: Marked[Float[Array, "tokens heads"]]
    terms: Marked[Float[Array, "tokens"]]
    offsets: Marked[Float[Array, "tokens"]]
    values: Marked[Float[Array, "..."]]
    on_mixed: Marked[Float[Array, "..."]]
    moves: Marked[Float[Array, "..."]]
    after: Float[Array, ""]
    from_others: Float[Array, ""]


def as_it_lies(_: Site, array: Array) -> Array:
    """Return an array whose first axis is of tokens."""
    return array


def flow(
    recording: Recording,
    readout: Any = None,
    *,
    followed: FlowMarks,
    by_token: ByToken = as_it_lies,
    weights: Mapping[Site, Array] = {},
) -> StreamFlow:
    """Return how a read-out comes about, row by row.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax import stream
        >>> from duat_jax.forms.stream_flow import KINDS, FlowMarks, flow
        >>> from duat_jax.transform.recording import record_kinds
        >>> recording = record_kinds(lambda x: stream(x + x[::-1], "layer").sum(), jnp.array([[1.0], [2.0]]), KINDS)
        >>> rows = tuple((step.site,) for step in recording.streams)
        >>> flow(recording, followed=FlowMarks(rows, mixed=())).kept["layer"].tolist()
        [3.0, 3.0]
    """
    # Every dynamic parameter is held. The five kinds of parts are computed apart from each other, so that their sum at
    # a token of a row is a check of all of them.
    require_flowing(recording.arguments)
    require_affine(recording, None)
    found = _flow(recording, checked_readout(readout, recording.value), dict(weights), followed)

    def of_rows(parts: Seen) -> Marked[Array]:
        def of_site(site: Site) -> Array:
            part = by_token(site, parts[site])
            return part.sum(range(1, part.ndim))

        return Marked({row[0].key: sum(map(of_site, row[1:]), of_site(row[0])) for row in followed.rows})

    return StreamFlow(
        of_rows(found.streams),
        of_rows(found.kept),
        Marked({site.key: by_token(site, found.heads[site]).sum(-1) for site in followed.mixed}),
        of_rows(found.terms),
        of_rows(found.offsets),
        Marked({site.key: found.values[site] for site in followed.values}),
        Marked({site.key: found.on_mixed[site] for site in followed.mixed}),
        Marked({site.key: found.moves[site] for site, _ in followed.patterns}),
        found.after,
        found.from_others,
    )


class _Entrywise(NamedTuple):
    """The fields of `StreamFlow` before sums over features: entry by entry, by mark."""

    streams: Seen
    kept: Seen
    heads: Seen
    terms: Seen
    offsets: Seen
    values: Seen
    on_mixed: Seen
    moves: Seen
    after: Array
    from_others: Array


@partial(compiled, static_argnames=("followed",))
def _flow(recording: Recording, readout: Any, weights: Seen, followed: FlowMarks) -> _Entrywise:
    program, seen = recording.program, recording.seen
    streams = [site for row in followed.rows for site in row]
    mixed, values = followed.mixed, followed.values

    added = {Site(marks.ADDED[site.kind], site.key): site for site in streams}
    zeros = {place: jnp.zeros_like(seen[site]) for place, site in added.items()}
    _, on_added = pull_back(recording, question_of(recording, None, linear=added), None, readout, zeros)
    on = {site: on_added[place] for place, site in added.items()}

    outputs = {site.key: site for site in program.of_kind(marks.TERM_OUTPUT)}
    terms = [outputs.get(site.key, site) for site in program.of_kind(marks.ACTIVATION)]
    offsets = [*program.of_kind(marks.OFFSET)]

    def changes(wanted: Sequence[Site], cut: Sequence[Site], moved: Sequence[Site], **more: Any) -> tuple[Seen, Any]:
        return _changes(recording, wanted, cut, {site: seen[site] for site in moved}, **more)

    from_before, _ = changes(streams, [*streams, *mixed], streams, argument=True)
    linear, _ = changes([*values, *mixed], streams, streams)
    from_terms, terms_after = changes(streams, streams, terms)
    from_offsets, offsets_after = changes(streams, streams, offsets)
    on_mixed = _on_mixed(recording, streams, mixed, on)

    def moved_by(patterns: Seen) -> Seen:
        # What heads read that others have moved is given, so that each pattern moves what its own heads mix.
        moving = {site: seen[site] for site in streams} | {site: linear[site] for site in mixed}
        moved, _ = _changes(recording, mixed, [*streams, *mixed], moving, held=patterns)
        return {site: moved[site] for site, _ in followed.patterns}

    patterns = {pattern: seen[pattern] for _, pattern in followed.patterns}
    (on_patterns,) = jax.vjp(moved_by, patterns)[1]({site: on_mixed[site] for site, _ in followed.patterns})

    def parts(found: Seen) -> Seen:
        return {site: on[site] * found[site] for site in streams}

    kept, from_others = parts(from_before), jnp.zeros(())
    if weights:
        # Of what a token keeps of its own, its weight is a factor.
        shares = {site: weights[site].astype(seen[site].dtype) for site in streams}
        moving = {site: seen[site] * shares[site] for site in streams}
        weighted, _ = _changes(recording, streams, [*streams, *mixed], moving)
        later = [site for row in followed.rows[1:] for site in row]
        away = [jnp.abs(on[site] * weighted[site] - shares[site] * kept[site]).max() for site in later]
        largest = [jnp.abs(kept[site]).max() for site in later]
        most, whole = (jnp.array([0.0, *(part.astype(float) for part in each)]).max() for each in (away, largest))
        from_others = most / jnp.maximum(whole, jnp.finfo(whole.dtype).tiny)

    return _Entrywise(
        parts(seen),
        kept,
        {site: on_mixed[site] * linear[site] for site in mixed},
        parts(from_terms),
        parts(from_offsets),
        {site: linear[site] for site in values},
        on_mixed,
        {site: patterns[pattern] * on_patterns[pattern] for site, pattern in followed.patterns},
        decomposition.dot(readout, jax.tree.map(jnp.add, terms_after, offsets_after)),
        from_others,
    )


def _on_mixed(recording: Recording, streams: Sequence[Site], mixed: Sequence[Site], on: Seen) -> Seen:
    """Return the read-out of the next row pulled back to what heads mix, as far as no other head moves it."""
    zeros = {site: jnp.zeros_like(recording.seen[site]) for site in mixed}

    def read(mixed: Seen) -> Seen:
        return _read(recording, streams, [*streams, *zeros], {}, mixed)[1]

    changes, pull_back = jax.vjp(read, zeros)
    return pull_back({site: on[site] for site in changes})[0]


def _changes(
    recording: Recording,
    wanted: Sequence[Site],
    cut: Sequence[Site],
    moving: Seen,
    *,
    argument: bool = False,
    held: Mapping[Site, Array] = {},
) -> tuple[Seen, Any]:
    """Return how marks and the result change by some marks alone, as far as the next cuts."""
    floats = {i: x for i, x in enumerate(recording.arguments) if is_float(x)} if argument else {}

    def read(floats: dict[int, Array], moving: Seen) -> tuple[Any, Seen]:
        return _read(recording, wanted, cut, floats, moving, held)

    start = jax.tree.map(jnp.zeros_like, (floats, moving))
    value, changes = jax.jvp(read, start, (floats, moving))[1]
    return changes, value


def _read(
    recording: Recording,
    wanted: Sequence[Site],
    cut: Sequence[Site],
    floats: dict[int, Array],
    moving: Seen,
    held: Mapping[Site, Array] = {},
) -> tuple[Any, Seen]:
    """Return the result and some marks, with some arguments and marks given, and zero at all others that are cut."""
    program, seen = recording.program, recording.seen
    linear = frozenset((*cut, *moving))
    question = ProgramQuestion(
        provided=linear | frozenset(program.of_kind(marks.HOLD, marks.ACTIVATION, marks.OFFSET)),
        linear=linear,
        wanted=frozenset(wanted),
        affine=True,
    )
    targets = [None, *(Occurrence(site, ()) for site in wanted)]
    zeros = [jnp.zeros_like(x) if is_float(x) else x for x in recording.arguments]
    still = {site: jnp.zeros_like(seen[site]) for site in cut}
    arguments = [floats.get(i, x) for i, x in enumerate(zeros)]
    return answer(recording, question, targets, arguments, {**still, **moving, **held})
