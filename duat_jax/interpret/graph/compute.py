"""Graph one number: follow it through the streams, heads and neurons of a model."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms.completeness import Completeness, completeness_of, entrywise_completeness
from duat_jax.forms.pre_activation import NeuronsAtTokens
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import Inputs, ManyInputs, OneInput
from duat_jax.inputs.question import Question, ask_once
from duat_jax.interpret.explain.compute import ENTROPY
from duat_jax.interpret.explain.compute import answer as explain
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.graph.flow import Flow, flow_of, recorded
from duat_jax.interpret.graph.neurons import NeuronArrays, groups_of, places_of, position_of, read_neurons, reads_of
from duat_jax.interpret.graph.result import Graph
from duat_jax.interpret.graph.scores import scores_of
from duat_jax.interpret.graph.streams import moved_to
from duat_jax.interpret.many_inputs import answers_each_input
from duat_jax.interpret.moves import SOURCES, edges_of
from duat_jax.interpret.pipeline import read_target, readers_of
from duat_jax.marking.streams import layer_before
from duat_jax.models.targets.base import OneTarget
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded, whole_number
from duat_jax.processes import on_host
from duat_jax.transform.keys import Key, Marked
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NEURONS = 24
"""The default number of neurons whose reading and writing is split."""
SCORES = 3
"""The default number of attention scores that are split."""
NO_SCORES = "Why heads attend where they do isn't split of a model that PyTorch's code computes."
"""The note where attention scores were asked for, and queries and keys aren't known."""
FROM_OTHERS = "What is kept comes from other tokens too, by what isn't attention, such as convolutions and recurrences."
"""The note where tokens are mixed past the heads."""


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
    explanation, checked, metric = explain(model, question), question.input, question.target
    text, stream = padded(checked, bucket(question.tokens, model.config.positions)), metric.stream
    (reader,) = readers_of(model, [metric])
    reading = read_target(model, checked, metric)[0]
    tokens = len(explanation.tokens)
    chosen = explanation.top(top_neurons)
    places, position = (
        (places_of(explanation, chosen), position_of(model, explanation, stream)) if chosen else (None,) * 2
    )
    keys, count = tuple(explanation.terms), min(SOURCES, tokens)
    computed, read = on_host(_followed(model, text, reading.readout, places, position, keys, stream, count))
    streams, kept, terms, biases = (np.stack(list(parts.values()))[:, :tokens] for parts in computed.of_rows)
    layers = tuple(layer_before(row, key) for row, key in enumerate(computed.of_rows[0]))
    moves = Marked({key: edges_of(each, tokens) for key, each in computed.moves.items()})
    moved = moved_to(streams, layers, moves)
    outside = (part for key, part in explanation.biases.items() if key.name in ("head.bias", metric.constant, ENTROPY))
    after = float(computed.after) + sum(outside)
    words = labels_of(model.config, checked, question.tokenizer)
    found_graph = Graph(
        explanation=explanation,
        ids=tuple(np.asarray(checked.given).tolist()) if model.config.image is None else (),
        streams=streams,
        kept=kept,
        terms=terms,
        biases=biases,
        layers=layers,
        moves=moves,
        after=after,
        neurons=() if read is None else tuple(read_neurons(explanation, chosen, read, words)),
        groups=tuple(groups_of(model, reader.pinned(reading), text, explanation, chosen, stream)),
        scores=(),
        completeness=_completeness(streams, [kept, terms, biases, moved], after, explanation, float(computed.eps)),
    )
    if model.config.marks is not None:
        known = [note for note, holds in ((FROM_OTHERS, computed.from_others), (NO_SCORES, top_heads)) if holds]
        return replace(found_graph, notes=tuple(known))
    return replace(found_graph, scores=scores_of(model, question, found_graph, top_heads))


@partial(stored_program, static_argnames=("terms", "stream", "count"))
def _followed(
    model: Transformer,
    inputs: Inputs,
    readout: Array,
    neurons: NeuronsAtTokens | None,
    position: Int[Array, ""] | None,
    terms: tuple[Key, ...],
    stream: int | None,
    count: int,
) -> tuple[Flow, NeuronArrays | None]:
    """Return how a read-out comes about, and what neurons read and write, from one recording."""
    recording = recorded(model, inputs, stream)
    flow = flow_of(model, inputs, recording, readout, count)
    return flow, None if neurons is None else reads_of(model, inputs, recording, neurons, position, terms)


def _completeness(
    streams: np.ndarray, parts: list[np.ndarray], after: float, explanation: Explanation, eps: float
) -> Completeness:
    """Return that of the token whose parts are furthest from their sum, or of the value, relative to the tolerance."""
    value = streams.dtype.type(explanation.completeness.value)
    terms = list(explanation.terms.values())
    every = _of_every_sum(streams, parts, terms, value, streams.dtype.type(after), eps).on_host()
    share = np.abs(every.error) / np.where(every.tolerance == 0, 1, every.tolerance)
    worst = int(np.argmax(np.where(np.isnan(share), np.inf, share)))
    return jax.tree.map(lambda leaf: leaf[worst], every)


@partial(stored_program, static_argnames=("eps",))
def _of_every_sum(
    streams: Array, parts: list[Array], terms: list[Array], value: Array, after: Array, eps: float
) -> Completeness:
    """Return the completeness of every token of every stream, and last that of the value, in which terms cancel."""
    rounded = [*terms, streams[-1], after]
    of_tokens = entrywise_completeness(streams, parts, [eps] * len(parts))
    of_value = completeness_of(value, [streams[-1], after], rounded, [eps] * len(rounded))
    return jax.tree.map(lambda *leaves: jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]), of_tokens, of_value)
