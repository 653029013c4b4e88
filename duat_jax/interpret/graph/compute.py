"""Graph one number: follow it through the streams, heads and neurons of a model."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms import stream_flow
from duat_jax.forms.completeness import Completeness, completeness_of, entrywise_completeness
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.question import Question, ask_once
from duat_jax.interpret.attention.held_pattern import pattern_of
from duat_jax.interpret.explain.compute import ENTROPY
from duat_jax.interpret.explain.compute import answer as explain
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.graph.neurons import PRECISION, groups_of, read_neurons
from duat_jax.interpret.graph.result import Graph
from duat_jax.interpret.graph.scores import scores_of
from duat_jax.interpret.many_inputs import answers_each_input
from duat_jax.interpret.moves import SOURCES, LargestMoves, Moves, edges_of, largest_moves
from duat_jax.interpret.pipeline import forward_from, read_target, readers_of
from duat_jax.models.sites import HEADS, VALUES
from duat_jax.models.targets.base import OneTarget
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_layers, require_loaded, whole_number
from duat_jax.processes import on_host
from duat_jax.transform.keys import Key, Marked
from duat_jax.transform.recording import Recording, record_kinds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NEURONS = 24
"""The default number of neurons whose reading and writing is split."""
SCORES = 3
"""The default number of attention scores that are split."""


@renamed_arguments(neurons="top_neurons", scores="top_heads")
@answers_each_input
def graph(
    model: Transformer,
    inputs: "OneInput | ManyInputs",
    target: "OneTarget" = None,
    *,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    top_neurons: int = NEURONS,
    top_heads: int = SCORES,
    tokenizer: "Tokenizer | None" = None,
) -> Graph:
    """Follow a number through a model: what every token of every stream is the sum of, head by head.

    With the number pulled back to stream `x_i` as `u_i`, token `t` has the part `⟨u_i, x_i⟩_t`. It is the sum of what
    was kept from the stream before, of what each head moved to it from each token, of what the layer's terms wrote,
    and of biases. The five are computed apart, so that their sum checks each of them.

    Args:
        model: a loaded model.
        inputs: a text; its token ids, `[tokens]`; or a `duat.TokenizedText`. For a vision model
            an image's pixels. Or a list of many.
        target: the explained number: a token, a class or a target, as in `duat.explain`.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, the other text, or its token ids.
        position: at which token the logit is read; negative counts from the end.
        top_neurons: of how many neurons, those with the largest contributions, what they read and write is split.
        top_heads: of how many heads, those with the largest moves, the attention score is split: why they attend where
            they do.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Returns:
        The `Graph`, with the explanation that it follows; it shows itself in a notebook as a page. Of many
        inputs, a list with one for each.

    Raises:
        InvalidInput: for an input that the model can't take, a combination of arguments, or a number of neurons or
            scores below zero.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> graph = duat.graph(model, "for i in range(10", "):", top_neurons=2, top_heads=0)
        >>> graph.completeness.verdict, graph.streams.shape
        ('holds', (7, 6))

    Source: Wang & Li, Eq. 34, of which each stream's parts follow.
    """
    require_loaded(model)
    question = ask_once(model, inputs, target, contrast, against, position, tokenizer)
    counts = {"top_neurons": top_neurons, "top_heads": top_heads}
    wrong = {name: count for name, count in counts.items() if whole_number(count) is None or count < 0}
    if wrong:
        raise InvalidInput(
            "; ".join(f"{name} = {count!r} must be a whole number from 0" for name, count in wrong.items())
        )
    return answer(model, question, top_neurons, top_heads)


def answer(model: Transformer, question: Question, top_neurons: int, top_heads: int) -> Graph:
    """Return the graph of a validated question."""
    require_layers(model.config)
    explanation, checked, metric = explain(model, question), question.input, question.target
    text, stream = padded(checked, bucket(question.tokens, model.config.positions)), metric.stream
    (reader,) = readers_of(model, [metric])
    reading = read_target(model, checked, metric)[0]
    tokens = len(explanation.tokens)
    computed = on_host(_flow(model, text, reading.readout, stream, min(SOURCES, tokens)))
    streams, kept, terms, biases = (np.stack(parts)[:, :tokens] for parts in computed.of_streams)
    moves = Marked({key: edges_of(each, tokens) for key, each in computed.moves.items()})
    outside = (part for key, part in explanation.biases.items() if key.name in ("head.bias", metric.constant, ENTROPY))
    after = float(computed.after) + sum(outside)
    chosen = explanation.top(top_neurons)
    words = labels_of(model.config, checked, question.tokenizer)
    found_graph = Graph(
        explanation=explanation,
        ids=tuple(np.asarray(checked.given).tolist()) if model.config.image is None else (),
        streams=streams,
        kept=kept,
        terms=terms,
        biases=biases,
        moves=moves,
        after=after,
        neurons=read_neurons(model, text, explanation, chosen, stream, words),
        groups=tuple(groups_of(model, reader.pinned(reading), text, explanation, chosen, stream)),
        scores=(),
        completeness=_completeness(streams, [kept, terms, biases], moves, after, explanation),
    )
    return replace(found_graph, scores=scores_of(model, question, found_graph, top_heads))


class _Flow(NamedTuple):
    of_streams: tuple[list[Array], list[Array], list[Array], list[Array]]
    moves: Marked[LargestMoves]
    after: Array


def _recorded(model: Transformer, inputs: Inputs, stream: int | None, kinds: tuple[str, ...]) -> Recording:
    real: Any = inputs.real
    return record_kinds(
        lambda x: forward_from(model, x, real, stream).at(stream), model.embed(inputs.given, inputs.segments), kinds
    )


@partial(jax.jit, static_argnames=("stream", "count"))
def _flow(model: Transformer, inputs: Inputs, readout: Array, stream: int | None, count: int) -> _Flow:
    recording = _recorded(model, inputs, stream, stream_flow.KINDS)
    flow = stream_flow.flow(recording, readout, mixed=HEADS, values=VALUES)

    def moves(key: Key) -> LargestMoves:
        block: Any = model.stack.blocks[key.layer or 0]
        pattern = pattern_of(block, recording, key.scope, inputs.real)
        (values,) = (part for k, part in flow.values.items() if k.scope == key.scope)
        values = jnp.repeat(values, block.attention.heads // values.shape[-2], -2)
        parts = pattern * jnp.einsum("thd,shd->hts", flow.on_mixed[key], values, precision=PRECISION)
        return largest_moves(parts, count)

    of_streams = flow.streams, flow.kept, flow.terms, flow.offsets
    return _Flow(of_streams, Marked({key: moves(key) for key in flow.on_mixed}), flow.after)


def _completeness(
    streams: np.ndarray, parts: list[np.ndarray], moves: Marked[Moves], after: float, explanation: Explanation
) -> Completeness:
    """Return that of the token whose parts are furthest from their sum, or of the value, relative to the tolerance."""
    moved = np.zeros_like(streams)
    for row, each in enumerate(moves.values(), 1):
        np.add.at(moved[row], each.tokens, each.parts.sum(-1))
        moved[row] += each.others.sum(-1)
    value = streams.dtype.type(explanation.completeness.value)
    every = _of_every_sum(
        streams, [*parts, moved], list(explanation.terms.values()), value, streams.dtype.type(after)
    ).on_host()
    share = np.abs(every.error) / np.where(every.tolerance == 0, 1, every.tolerance)
    worst = int(np.argmax(np.where(np.isnan(share), np.inf, share)))
    return jax.tree.map(lambda leaf: leaf[worst], every)


@jax.jit
def _of_every_sum(streams: Array, parts: list[Array], terms: list[Array], value: Array, after: Array) -> Completeness:
    """Return the completeness of every token of every stream, and last that of the value, in which terms cancel."""
    of_tokens = entrywise_completeness(streams, parts)
    of_value = completeness_of(value, [streams[-1], after], [*terms, streams[-1], after])
    return jax.tree.map(lambda *leaves: jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]), of_tokens, of_value)
