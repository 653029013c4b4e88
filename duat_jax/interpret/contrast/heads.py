"""The largest heads of a contrast, run again: each replaced by its output on the reference, and removed."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from duat_jax.forms.decomposition import KINDS
from duat_jax.inputs.batching import row
from duat_jax.interpret.comparison import Comparison
from duat_jax.interpret.contrast.head_parts import HeadPart, HeadRuns
from duat_jax.interpret.pipeline import forward_from, passed_on
from duat_jax.models.layout import UnitLayout
from duat_jax.models.targets.base import Reader, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.models.units import heads_of
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, run_again
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Site
from duat_jax.transform.query import pull_back, question_of
from duat_jax.transform.recording import record_again, record_kinds
from duat_jax.transform.stored_program import stored_program

HEAD_RUNS = 8
"""The largest number of heads for which a command and the live page run the model again."""


def run_heads(model: Transformer, runs: Comparison, heads: Sequence[HeadPart]) -> tuple[HeadRuns, ...]:
    """Run the model again for each head, with its output on the references in its place, and with zero."""
    layers = model.config.layers if runs.stream is None else runs.stream
    layouts = tuple(units for layer in range(layers) for units in heads_of(model.config, layer))
    keys = [units.site.key for units in layouts]
    known = [head for head in heads if head.mixed in keys]
    if not known:
        return ()
    places = np.array([(keys.index(head.mixed), head.token_index, head.head) for head in known], np.int32)
    found = _run(model, runs.reader, runs.real, runs.embeddings, places, layouts, runs.stream)
    replaced, removed, parts = on_host(found)
    predicted = [-float(parts[layer][token, head]) for layer, token, head in places]
    return tuple(map(HeadRuns, known, map(float, replaced), predicted, map(float, removed)))


@partial(stored_program, static_argnames=("layouts", "stream"))
def _run(
    model: Transformer,
    reader: Reader,
    real: Shaped[Array, "tokens"],
    xs: Float[Array, "rows tokens features"],
    places: Int[Array, "chosen three"],
    layouts: tuple[UnitLayout, ...],
    stream: int | None,
) -> tuple[Float[Array, "chosen"], Float[Array, "chosen"], list[Float[Array, "tokens _"]]]:
    """Return the changes where a head is replaced and removed, and every head's part with everything else held."""

    def states(x: Array) -> Array:
        return forward_from(model, x, real, stream).at(stream)

    def read(states: Array) -> Reading:
        return reader.read(model, passed_on(real, states, stream))

    def record_row(x: Array) -> tuple[Array, Seen, list[Array]]:
        again = record_again(recording, x)
        return again.value, again.seen, [units.by_token(again.seen[units.site], real) for units in layouts]

    # All rows in one batch; the pass by which the program is traced isn't computed.
    recording = record_kinds(states, xs[0], [*KINDS, marks.POINT])
    values, seen, by_token = jax.vmap(record_row)(xs)
    recording = replace(recording, value=values[0], seen=row(seen, 0))
    before = read(recording.value)
    # The outputs on each reference, and then zero.
    others = [jnp.append(each[1:], jnp.zeros_like(each[:1]), 0) for each in by_token]

    def run(place: Array, which: Array) -> Array:
        """Return the number where one head's output is another."""
        edits = {}
        for layer, (units, other) in enumerate(zip(layouts, others, strict=True)):
            tokens, heads, _ = jnp.indices(other.shape[1:], place.dtype)
            here = ((layer == place[0]) & (tokens == place[1]) & (heads == place[2])).astype(other.dtype)
            edits[units.site] = Edit(*(units.as_they_lie(each, real) for each in (1 - here, here * other[which])))
        return read(run_again(recording, edits)).value

    rows = jnp.arange(len(xs))
    pairs = jnp.repeat(places, len(rows), 0), jnp.tile(rows, len(places))
    changes = jax.vmap(run)(*pairs).reshape(len(places), -1) - before.value
    zeros = {
        Site(marks.ADDED[units.site.kind], units.site.key): jnp.zeros_like(recording.seen[units.site])
        for units in layouts
    }
    _, pulled = pull_back(recording, question_of(recording, None, linear=zeros), None, before.readout, zeros)
    parts = [
        (units.by_token(pulled[added], real) * units.by_token(recording.seen[units.site], real)).sum(-1)
        for units, added in zip(layouts, zeros, strict=True)
    ]
    return changes[:, :-1].mean(1), changes[:, -1], parts
