"""Graph one number: follow it through the streams, heads and neurons of a model."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import BadText
from duat_jax.forms import flow, pre_activation
from duat_jax.forms.completeness import Completeness, completeness_of, entrywise_completeness
from duat_jax.forms.pre_activation import Neurons, Reads
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import Inputs, OneInput
from duat_jax.inputs.request import check_one
from duat_jax.interpret.attention.held_pattern import pattern_of
from duat_jax.interpret.explain.compute import ENTROPY, explain
from duat_jax.interpret.explain.result import ActiveNeuron, Explanation
from duat_jax.interpret.graph.result import Graph, Moves, NeuronGroup, ReadNeuron
from duat_jax.interpret.graph.scores import scores_of
from duat_jax.interpret.pipeline import forward_from, passed_on, read_target, readers_of
from duat_jax.models.sites import HEADS, VALUES
from duat_jax.models.targets.base import OneTarget, Reader
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded, whole_number
from duat_jax.nn.linear import alike
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Key, Marked, Site
from duat_jax.transform.recording import Recording, record_kinds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SOURCES = 6
"""The number of tokens that a token has edges from; the others are one sum."""
NEURONS = 24
"""The default number of neurons whose reading and writing is split."""
SCORES = 3
"""The default number of attention scores that are split."""
OUTPUTS = 5
"""The number of outputs that a neuron is said to raise or lower."""
PRECISION = jax.lax.Precision.HIGHEST


def graph(
    model: Transformer,
    inputs: "OneInput",
    target: "OneTarget" = None,
    *,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    neurons: int = NEURONS,
    scores: int = SCORES,
    tokenizer: "Tokenizer | None" = None,
) -> Graph:
    """Follow a number through a model: what every token of every stream is the sum of, head by head.

    With the number pulled back to stream `x_i` as `u_i`, token `t` has the part `⟨u_i, x_i⟩_t`. It is the sum of what
    was kept from the stream before, of what each head moved to it from each token, of what the layer's terms wrote,
    and of biases. The five are computed apart, so that their sum checks each of them.

    Args:
        model: a loaded model.
        inputs: a text, with its `tokenizer`; its token ids, `[tokens]`; or a `duat.TokenizedText`. For a vision model
            an image's pixels.
        target: the explained number: a token, a class or a target, as in `duat.explain`.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, the other text, or its token ids.
        position: at which token the logit is read; negative counts from the end.
        neurons: of how many neurons, those with the largest contributions, what they read and write is split.
        scores: of how many heads, those with the largest moves, the attention score is split: why they attend where
            they do.
        tokenizer: makes tokens readable and knows the mask.

    Returns:
        The `Graph`, with the explanation that it follows; it shows itself in a notebook as a page.

    Raises:
        BadText: for an input that the model can't take, a combination of arguments, or a number of neurons or
            scores below zero.

    Example:
        >>> import duat_jax as duat
        >>> model, tokenizer = duat.load(tokenizer=True)
        >>> graph = duat.graph(model, "for i in range(10", "):", neurons=2, scores=0, tokenizer=tokenizer)
        >>> graph.completeness.verdict, graph.streams.shape
        ('holds', (7, 6))

    Source: Wang & Li, Eq. 34, of which each stream's parts follow.
    """
    require_loaded(model)
    checked, metric = check_one(model.config, inputs, target, contrast, against, position, tokenizer)
    counts = {"neurons": whole_number(neurons), "scores": whole_number(scores)}
    if wrong := [name for name, count in counts.items() if count is None or count < 0]:
        given = {"neurons": neurons, "scores": scores}
        raise BadText("; ".join(f"{name} = {given[name]!r} must be a whole number from 0" for name in wrong))
    explanation = explain(
        model, inputs, target, contrast=contrast, against=against, position=position, tokenizer=tokenizer
    )
    text, stream = padded(checked, bucket(len(checked.real), model.config.positions)), metric.stream
    (reader,) = readers_of(model, [metric])
    reading = read_target(model, checked, metric)[0]
    tokens = len(explanation.tokens)
    found = jax.device_get(_flow(model, text, reading.readout, stream, min(SOURCES, tokens)))
    streams, kept, terms, biases = (np.stack(parts)[:, :tokens] for parts in found.of_streams)
    moves = Marked({key: _edges(each, tokens) for key, each in found.moves.items()})
    outside = (part for key, part in explanation.biases.items() if key.name in ("head.bias", ENTROPY))
    after = float(found.after) + sum(outside)
    chosen = explanation.top(neurons)
    read = _neurons(model, text, explanation, chosen, stream) if chosen else None
    words = labels_of(model.config, checked, tokenizer)
    found_graph = Graph(
        explanation=explanation,
        ids=tuple(np.asarray(checked.given).tolist()) if model.config.image is None else (),
        streams=streams,
        kept=kept,
        terms=terms,
        biases=biases,
        moves=moves,
        after=after,
        neurons=() if read is None else tuple(_read_neurons(explanation, chosen, read, words)),
        groups=tuple(_groups(model, reader.pinned(reading), text, explanation, chosen, stream)),
        scores=(),
        completeness=_completeness(streams, [kept, terms, biases], moves, after, explanation),
    )
    return replace(found_graph, scores=scores_of(model, inputs, found_graph, scores, tokenizer))


class _Moves(NamedTuple):
    sources: Int[Array, "tokens sources"]
    parts: Float[Array, "tokens sources heads"]
    others: Float[Array, "tokens heads"]


class _Flow(NamedTuple):
    of_streams: tuple[list[Array], list[Array], list[Array], list[Array]]
    moves: Marked[_Moves]
    after: Array


def _recorded(model: Transformer, inputs: Inputs, stream: int | None, kinds: tuple[str, ...]) -> Recording:
    real: Any = inputs.real
    return record_kinds(
        lambda x: forward_from(model, x, real, stream).at(stream), model.embed(inputs.given, inputs.segments), kinds
    )


@partial(jax.jit, static_argnames=("stream", "count"))
def _flow(model: Transformer, inputs: Inputs, readout: Array, stream: int | None, count: int) -> _Flow:
    recording = _recorded(model, inputs, stream, flow.KINDS)
    found = flow.flow(recording, readout, mixed=HEADS, values=VALUES)

    def moves(key: Key) -> _Moves:
        block: Any = model.stack.blocks[key.layer or 0]
        pattern = pattern_of(block, recording, key.scope, inputs.real)
        (values,) = (part for k, part in found.values.items() if k.scope == key.scope)
        values = jnp.repeat(values, block.attention.heads // values.shape[-2], -2)
        parts = pattern * jnp.einsum("thd,shd->hts", found.on_mixed[key], values, precision=PRECISION)
        sources = jax.lax.top_k(jnp.abs(parts.sum(0)), count)[1]
        largest = jnp.take_along_axis(parts, sources[None], -1)
        others = jnp.put_along_axis(parts, jnp.broadcast_to(sources[None], largest.shape), 0, -1, inplace=False)
        return _Moves(sources, jnp.moveaxis(largest, 0, -1), others.sum(-1).T)

    of_streams = found.streams, found.kept, found.terms, found.offsets
    return _Flow(of_streams, Marked({key: moves(key) for key in found.on_mixed}), found.after)


def _edges(moves: Any, tokens: int) -> Moves:
    """Return the edges along which anything moves, without those of padding."""
    queries, places = np.nonzero(np.abs(moves.parts[:tokens]).sum(-1))
    return Moves(
        moves.sources[queries, places].astype(np.int64),
        queries.astype(np.int64),
        moves.parts[queries, places],
        moves.others[:tokens].copy(),
    )


def _completeness(
    streams: np.ndarray, parts: list[np.ndarray], moves: Marked[Moves], after: float, explanation: Explanation
) -> Completeness:
    """Return that of the token whose parts are furthest from their sum, or of the value, relative to the tolerance."""
    moved = np.zeros_like(streams)
    for row, each in enumerate(moves.values(), 1):
        np.add.at(moved[row], each.tokens, each.parts.sum(-1))
        moved[row] += each.others.sum(-1)
    value = streams.dtype.type(explanation.completeness.value)
    every = _of_every_sum(streams, [*parts, moved], value, streams.dtype.type(after)).on_host()
    share = np.abs(every.error) / np.where(every.tolerance == 0, 1, every.tolerance)
    worst = int(np.argmax(np.where(np.isnan(share), np.inf, share)))
    return jax.tree.map(lambda leaf: leaf[worst], every)


@jax.jit
def _of_every_sum(streams: Array, parts: list[Array], value: Array, after: Array) -> Completeness:
    """Return the completeness of every token of every stream, and last that of the value."""
    of_tokens, of_value = entrywise_completeness(streams, parts), completeness_of(value, [streams[-1], after])
    return jax.tree.map(lambda *leaves: jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]), of_tokens, of_value)


class _Neurons(NamedTuple):
    reads: Reads
    highest: tuple[Float[Array, "neurons outputs"], Int[Array, "neurons outputs"]] | None
    lowest: tuple[Float[Array, "neurons outputs"], Int[Array, "neurons outputs"]] | None


def _neurons(
    model: Transformer, inputs: Inputs, explanation: Explanation, chosen: list[ActiveNeuron], stream: int | None
) -> _Neurons:
    neurons = _places(explanation, chosen)
    says = model.config.head.kind in ("next token", "masked token") and stream is None
    return jax.device_get(_read(model, inputs, neurons, stream, explanation.target.position if says else None))


def _places(explanation: Explanation, chosen: list[ActiveNeuron]) -> Neurons:
    """Return the neurons by the numbers of their terms, of their tokens, and of their own."""
    numbers = {key: number for number, key in enumerate(explanation.terms)}
    places = [(numbers[each.term], each.token_index, each.neuron) for each in chosen]
    return Neurons(*np.array(places, np.int32).reshape(-1, 3).T)


@partial(jax.jit, static_argnames="stream")
def _read(
    model: Transformer, inputs: Inputs, neurons: Neurons, stream: int | None, position: Int[Array, ""] | None
) -> _Neurons:
    recording = _recorded(model, inputs, stream, marks.KINDS)
    reads = pre_activation.read_by(recording, neurons)
    if position is None:
        return _Neurons(reads, None, None)
    written = pre_activation.written_by(recording, neurons)[:, position]
    logits = jnp.matmul(written, alike(model.unembedding, written).T, precision=PRECISION)
    return _Neurons(reads, *(jax.lax.top_k(sign * logits, min(OUTPUTS, logits.shape[-1])) for sign in (1, -1)))


def _read_neurons(explanation: Explanation, chosen: list[ActiveNeuron], found: _Neurons, words: Any) -> Any:
    tokens, reads = len(explanation.tokens), found.reads

    def outputs(best: Any, sign: int, place: int) -> tuple[tuple[str, float], ...]:
        if best is None:
            return ()
        return tuple(
            (words.output(int(output)), sign * float(change))
            for change, output in zip(best[0][place], best[1][place], strict=True)
        )

    for place, neuron in enumerate(chosen):
        yield ReadNeuron(
            neuron=neuron,
            pre_activation=float(reads.pre_activations[place]),
            embedding=reads.input[place, :tokens].copy(),
            terms=np.stack([part[place, :tokens] for part in reads.terms.values()]),
            biases=Marked({key: float(part[place]) for key, part in reads.offsets.items()}),
            edges=np.array(reads.edges[place]),
            raised=outputs(found.highest, 1, place),
            lowered=outputs(found.lowest, -1, place),
        )


def _groups(
    model: Transformer,
    reader: Reader,
    inputs: Inputs,
    explanation: Explanation,
    chosen: list[ActiveNeuron],
    stream: int | None,
) -> Iterator[NeuronGroup]:
    """Yield the neurons of each token, with the change of the value when the model is run again without them."""
    by_token: dict[int, list[int]] = {}
    for place, neuron in enumerate(chosen):
        by_token.setdefault(neuron.token_index, []).append(place)
    widths = tuple((key, activations.shape[-1]) for key, activations in explanation.activations.items())
    neurons = _places(explanation, chosen)
    for token, members in sorted(by_token.items()):
        off = np.isin(np.arange(len(chosen)), members)
        yield NeuronGroup(
            name=explanation.tokens[token],
            members=tuple(members),
            predicted=-sum(chosen[place].contribution for place in members),
            measured=float(_without(model, reader, inputs, neurons, off, widths, stream)) - explanation.value,
        )


@partial(jax.jit, static_argnames=("widths", "stream"))
def _without(
    model: Transformer,
    reader: Reader,
    inputs: Inputs,
    neurons: Neurons,
    off: Bool[Array, "neurons"],
    widths: tuple[tuple[Key, int], ...],
    stream: int | None,
) -> Float[Array, ""]:
    """Return the number of the model run again with some neurons switched off."""
    real: Any = inputs.real
    edits = {}
    for term, (key, width) in enumerate(widths):
        factors = jnp.where(off & (neurons.terms == term), 0.0, 1.0)
        kept = jnp.ones((len(real), width)).at[neurons.tokens, neurons.units].min(factors, mode="drop")
        edits[Site(marks.ACTIVATION, key)] = Edit(kept)
    run = edit(lambda x: forward_from(model, x, real, stream).at(stream), edits)
    return reader.read(model, passed_on(real, run(model.embed(inputs.given, inputs.segments)), stream)).value
