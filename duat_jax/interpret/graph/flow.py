"""The flow of a number through a model: the rows of its streams, and the moves of its heads."""

from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from duat_jax.forms import stream_flow
from duat_jax.forms.stream_flow import FlowMarks, StreamFlow
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.attention.held_pattern import pattern_of
from duat_jax.interpret.moves import LargestMoves, largest_moves
from duat_jax.interpret.pipeline import forward_from
from duat_jax.marking.program import MIXED
from duat_jax.marking.streams import rows_of_streams
from duat_jax.models.layout import UnitLayout
from duat_jax.models.sites import HEADS, VALUES
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.transform import marks
from duat_jax.transform.affinity import INPUT
from duat_jax.transform.keys import Key, Marked, Occurrence, Site
from duat_jax.transform.program import Program
from duat_jax.transform.query import question_of
from duat_jax.transform.recording import Recording, record_kinds

ROUNDING = 1e-4
"""The share of the largest part above which a part isn't rounding."""


class Flow(NamedTuple):
    """The rows of a graph, and the largest moves of heads.

    Args:
        of_rows: what each row has, what it kept, what terms wrote and what biases added, `[tokens]`.
        moves: what heads moved to every token, by the mark of what they mix.
        after: what is added after the last row.
        eps: the coarsest rounding on the way of the number.
        from_others: whether what is kept comes from other tokens too, past the heads.
    """

    of_rows: tuple[Marked[Array], Marked[Array], Marked[Array], Marked[Array]]
    moves: Marked[LargestMoves]
    after: Float[Array, ""]
    eps: Float[Array, ""]
    from_others: Bool[Array, ""]


def recorded(model: Transformer, inputs: Inputs, stream: int | None) -> Recording:
    """Return a recording of a model from its embeddings to its states, or to a stream."""
    real: Any = inputs.real
    return record_kinds(lambda x: forward_from(model, x, real, stream).at(stream), inputs.embedded(model), marks.KINDS)


def flow_of(model: Transformer, inputs: Inputs, recording: Recording, readout: Array, count: int) -> Flow:
    """Return how a read-out of a model's states, or of a stream, comes about."""
    real: Any = inputs.real
    known = {each.site: each for each in model.config.marks or ()}
    if model.config.marks is None:
        flow = stream_flow.flow(recording, readout, followed=_of_family(recording.program))
        moves = _moves_of_family(model, recording, flow, real, count)
    else:
        by_token = partial(_by_token, known, real)
        followed = _of_code(recording, known)
        weights = {site: _weights(known[site], real) for row in followed.rows for site in row}
        flow = stream_flow.flow(recording, readout, followed=followed, by_token=by_token, weights=weights)
        moves = _moves_of_code(flow, known, real, count)
    of_rows = flow.streams, flow.kept, flow.terms, flow.offsets
    coarsest = recording.traced.rounding(question_of(recording, None)).coarsest
    return Flow(of_rows, moves, flow.after, jnp.array(coarsest), flow.from_others > ROUNDING)


def _of_family(program: Program) -> FlowMarks:
    """Return what is followed through a model of this package's layers."""
    points = program.of_kind(marks.POINT)
    mixed, values = (tuple(site for site in points if site.key.name == name) for name in (HEADS, VALUES))
    return FlowMarks(tuple((site,) for site in program.of_kind(marks.STREAM)), mixed, values)


def _moves_of_family(
    model: Transformer, recording: Recording, flow: StreamFlow, real: Shaped[Array, "tokens"], count: int
) -> Marked[LargestMoves]:
    """Return what each head moves to each token from each other, where patterns may not be stored."""

    def moves(key: Key) -> LargestMoves:
        block: Any = model.stack.blocks[key.layer or 0]
        pattern = pattern_of(block, recording, key.scope, real)
        (values,) = (part for k, part in flow.values.items() if k.scope == key.scope)
        values = jnp.repeat(values, block.attention.heads // values.shape[-2], -2)
        parts = pattern * jnp.einsum("thd,shd->hts", flow.on_mixed[key], values, precision=PRECISION)
        return largest_moves(parts, count)

    return Marked({key: moves(key) for key in flow.on_mixed})


def _of_code(recording: Recording, known: dict[Site, UnitLayout]) -> FlowMarks:
    """Return what is followed through a model that PyTorch's code computes."""
    sites, affinity = recording.program.of_kind(marks.STREAM, marks.POINT), recording.traced.affinity

    def mixes(site: Site) -> bool:
        """Return whether heads mix something that isn't from terms alone, as a sum over experts is."""
        of_heads = site.key.name == MIXED and site in known
        return of_heads and INPUT in affinity.sources(affinity.at(Occurrence(site, ())).sources)

    rows = tuple(map(tuple, rows_of_streams(sites, known)))
    mixed, layer = [], None
    # Where heads mix after their layer's last stream, what they move is among what the next row keeps.
    for site in reversed(sites):
        layer = next((site.key.layer for row in rows if row[0] == site), layer)
        if site.key.layer == layer is not None and mixes(site):
            mixed.append(site)
    patterns = {site: pattern.site for site in mixed if (pattern := known[site].pattern) is not None}
    by_use = Counter(patterns.values())  # of one that several products share, the derivative has the moves of all
    alone = tuple((site, pattern) for site, pattern in patterns.items() if by_use[pattern] == 1)
    return FlowMarks(rows, tuple(reversed(mixed)), patterns=alone)


def _weights(units: UnitLayout, real: Shaped[Array, "tokens"]) -> Array:
    """Return a weight of every token, another one of each, as a mark's array lies."""
    weights = jnp.sqrt(jnp.arange(1.0, len(real) + 1)).reshape(-1, *[1] * len(units.shape))
    return units.as_they_lie(jnp.broadcast_to(weights, (len(real), *units.shape)), real)


def _by_token(known: dict[Site, UnitLayout], real: Shaped[Array, "tokens"], site: Site, array: Array) -> Array:
    """Return the array of a mark token by token."""
    return known[site].by_token(array, real)


def _moves_of_code(
    flow: StreamFlow, known: dict[Site, UnitLayout], real: Shaped[Array, "tokens"], count: int
) -> Marked[LargestMoves]:
    """Return what each head moves to each token from each other; all together where no pattern is known."""

    def moves(key: Key, heads: Array) -> LargestMoves:
        pattern = known[Site(marks.POINT, key)].pattern
        if pattern is not None and key in flow.moves:
            return largest_moves(pattern.by_token(flow.moves[key], real), count)
        tokens, number = heads.shape
        return LargestMoves(jnp.zeros((tokens, 0), int), jnp.zeros((tokens, 0, number), heads.dtype), heads)

    return Marked({key: moves(key, heads) for key, heads in flow.heads.items()})
