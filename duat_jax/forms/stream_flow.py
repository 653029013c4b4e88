"""The read-out at every stream, and what every head moves from which token to which."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms import decomposition
from duat_jax.forms.decomposition import checked_readout, require_flowing
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.keys import Marked, Occurrence, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.query import answer, is_float, pull_back, question_of, require_affine
from duat_jax.transform.recording import Recording

KINDS = (*decomposition.KINDS, marks.STREAM, marks.POINT)
"""The marks that a flow needs."""


class StreamFlow(NamedTuple):
    """A read-out at every stream on its way, and what each stream is the sum of.

    With `u_i` the read-out pulled back to stream `x_i`, token `t` of it has the part `⟨u_i, x_i⟩_t`; it is the sum of
    what came from the same token of the stream before it, of what heads moved to it, of its layer's terms, and of
    biases.

    Args:
        streams: the part of every token of each stream, `[tokens]`.
        kept: what came along the residual path alone: of the first stream from the argument, of each other one from the
            stream before it, with what heads mix taken away, `[tokens]`.
        heads: what each head brought to a token, without biases, `[tokens, heads]`, by what it mixes.
        terms: what the terms since the stream before it wrote, `[tokens]`.
        offsets: what biases and norm offsets since the stream before it added, those that heads moved included,
            `[tokens]`.
        values: the linear part of the marked values, a head's value vectors without biases,
            `[tokens, key_value_heads, head_features]`.
        on_mixed: the read-out pulled back to what each head mixes, `[tokens, heads, head_features]`.
        after: what terms and offsets after the last stream add to the read-out.
    """

    streams: list[Float[Array, "tokens"]]
    kept: list[Float[Array, "tokens"]]
    heads: Marked[Float[Array, "tokens heads"]]
    terms: list[Float[Array, "tokens"]]
    offsets: list[Float[Array, "tokens"]]
    values: Marked[Float[Array, "tokens key_value_heads head_features"]]
    on_mixed: Marked[Float[Array, "tokens heads head_features"]]
    after: Float[Array, ""]


def flow(recording: Recording, readout: Any = None, *, mixed: str, values: str) -> StreamFlow:
    """Return how a read-out comes about, stream by stream.

    Example:
        >>> import jax.numpy as jnp
        >>> from duat_jax import stream
        >>> from duat_jax.forms.stream_flow import KINDS, flow
        >>> from duat_jax.transform.recording import record_kinds
        >>> recording = record_kinds(lambda x: stream(x + x[::-1], "layer").sum(), jnp.array([[1.0], [2.0]]), KINDS)
        >>> flow(recording, mixed="attention.mixed", values="attention.values").kept[0].tolist()
        [3.0, 3.0]
    """
    # Every dynamic parameter is held. The five kinds of parts are computed apart from each other, so that their sum at
    # a token of a stream is a check of all of them.
    require_flowing(recording.arguments)
    require_affine(recording, None)
    return _flow(recording, checked_readout(readout, recording.value), mixed, values)


@partial(compiled, static_argnames=("mixed", "values"))
def _flow(recording: Recording, readout: Any, mixed: str, values: str) -> StreamFlow:
    program, seen = recording.program, recording.seen
    streams = [step.site for step in recording.streams]
    mixing, valued = (
        [site for site in program.of_kind(marks.POINT) if site.key.name == name] for name in (mixed, values)
    )

    added = {Site(marks.ADDED[site.kind], site.key): site for site in (*streams, *mixing)}
    zeros = {place: jnp.zeros_like(seen[site]) for place, site in added.items()}
    _, on_added = pull_back(recording, question_of(recording, None, linear=added), None, readout, zeros)
    on = {site: on_added[place] for place, site in added.items()}

    outputs = {site.key: site for site in program.of_kind(marks.TERM_OUTPUT)}
    terms = [outputs.get(site.key, site) for site in program.of_kind(marks.ACTIVATION)]
    offsets = [*program.of_kind(marks.OFFSET)]
    local = partial(_changes, recording, [*streams, *valued, *mixing])
    from_before, _ = local([*streams, *mixing], moved=streams, argument=True)
    linear, _ = local(streams, moved=streams)
    from_terms, terms_after = local(streams, moved=terms)
    from_offsets, offsets_after = local(streams, moved=offsets)

    def parts(changes: dict[Site, Array]) -> list[Array]:
        return [(on[site] * changes[site]).sum(-1) for site in streams]

    return StreamFlow(
        parts(seen),
        parts(from_before),
        Marked({site.key: (on[site] * linear[site]).sum(-1) for site in mixing}),
        parts(from_terms),
        parts(from_offsets),
        Marked({site.key: linear[site] for site in valued}),
        Marked({site.key: on[site] for site in mixing}),
        decomposition.dot(readout, jax.tree.map(jnp.add, terms_after, offsets_after)),
    )


def _changes(
    recording: Recording, wanted: list[Site], cut: list[Site], *, moved: list[Site], argument: bool = False
) -> tuple[dict[Site, Array], Any]:
    """Return how marks and the result change by some marks alone, as far as the next cuts."""
    program, seen = recording.program, recording.seen
    moving = {site: seen[site] for site in moved}
    linear = frozenset((*cut, *moved))
    question = ProgramQuestion(
        provided=linear | frozenset(program.of_kind(marks.HOLD, marks.ACTIVATION, marks.OFFSET)),
        linear=linear,
        wanted=frozenset(wanted),
        affine=True,
    )
    targets = [None, *(Occurrence(site, ()) for site in wanted)]
    zeros = [jnp.zeros_like(x) if is_float(x) else x for x in recording.arguments]
    floats = {i: x for i, x in enumerate(recording.arguments) if is_float(x)} if argument else {}

    def read(floats: dict[int, Array], moving: dict[Site, Array]) -> tuple[Any, dict[Site, Array]]:
        still = {site: jnp.zeros_like(seen[site]) for site in cut}
        arguments = [floats.get(i, x) for i, x in enumerate(zeros)]
        return answer(recording, question, targets, arguments, still | moving)

    start = jax.tree.map(jnp.zeros_like, (floats, moving))
    value, changes = jax.jvp(read, start, (floats, moving))[1]
    return changes, value
