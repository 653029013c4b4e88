"""Neurons of a graph: what they read and write, and the model run again without some of them."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.forms import pre_activation
from duat_jax.forms.pre_activation import NeuronsAtTokens, Reads
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import Labels, labels_of
from duat_jax.inputs.model_inputs import Inputs, OneInput
from duat_jax.inputs.question import ask_once
from duat_jax.interpret.explain.compute import answer as explain
from duat_jax.interpret.explain.result import ActiveNeuron, Explanation
from duat_jax.interpret.graph.read_neuron import NeuronGroup, ReadNeuron
from duat_jax.interpret.pipeline import forward_from, passed_on, units_of_tokens
from duat_jax.models.targets.base import Reader
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import alike
from duat_jax.operators.precision import PRECISION
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.keys import Key, Marked, Site
from duat_jax.transform.recording import record_kinds
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OUTPUTS = 5
"""The number of outputs that a neuron is said to raise or lower."""
AT_ONCE = 4
"""The number of groups that are measured together."""


def read_neuron(
    model: Transformer,
    inputs: "OneInput",
    layer: int,
    token: int,
    neuron: int,
    *,
    tokenizer: "Tokenizer | None" = None,
    **target: Any,
) -> tuple[Explanation, ReadNeuron]:
    """Split what one neuron reads and writes."""
    question = ask_once(model, inputs, tokenizer=tokenizer, **target)
    explanation, checked = explain(model, question), question.input
    terms = {key.layer: key for key in explanation.terms}
    if layer not in terms or not 0 <= token < len(explanation.tokens):
        raise InvalidInput(f"there is no neuron of layer {layer} at token {token}")
    term = terms[layer]
    if not 0 <= neuron < explanation.activations[term].shape[-1]:
        raise InvalidInput(f"layer {layer} has no neuron {neuron}")
    at = token, neuron
    factors = (float(each[term][at]) for each in (explanation.coefficients, explanation.activations))
    chosen = ActiveNeuron(term, *at, float(explanation.terms[term][at]), *factors)
    text = padded(checked, bucket(len(checked.real), model.config.positions))
    words = labels_of(model.config, checked, question.tokenizer)
    (read,) = read_neurons(model, text, explanation, [chosen], question.target.stream, words)
    return explanation, read


def read_neurons(
    model: Transformer,
    inputs: Inputs,
    explanation: Explanation,
    chosen: list[ActiveNeuron],
    stream: int | None,
    words: Labels,
) -> tuple[ReadNeuron, ...]:
    """Split what neurons read and write."""
    if not chosen:
        return ()
    says = model.config.head.kind in ("next token", "masked token") and stream is None
    position = explanation.target.position if says else None
    arrays = on_host(_read(model, inputs, _places(explanation, chosen), position, tuple(explanation.terms), stream))
    return tuple(_read_neurons(explanation, chosen, arrays, words))


class _NeuronArrays(NamedTuple):
    reads: Reads
    highest: tuple[Float[Array, "neurons outputs"], Int[Array, "neurons outputs"]] | None
    lowest: tuple[Float[Array, "neurons outputs"], Int[Array, "neurons outputs"]] | None


def _places(explanation: Explanation, chosen: list[ActiveNeuron]) -> NeuronsAtTokens:
    """Return the neurons by the numbers of their terms, of their tokens, and of their own."""
    numbers = {key: number for number, key in enumerate(explanation.terms)}
    places = [(numbers[each.term], each.token_index, each.neuron) for each in chosen]
    return NeuronsAtTokens(*np.array(places, np.int32).reshape(-1, 3).T)


@partial(stored_program, static_argnames=("terms", "stream"))
def _read(
    model: Transformer,
    inputs: Inputs,
    neurons: NeuronsAtTokens,
    position: Int[Array, ""] | None,
    terms: tuple[Key, ...],
    stream: int | None,
) -> _NeuronArrays:
    real: Any = inputs.real
    recording = record_kinds(
        lambda x: forward_from(model, x, real, stream).at(stream),
        inputs.embedded(model),
        marks.KINDS,
    )
    # Layers behind the stream that the target reads aren't run.
    run = tuple(key for key in terms if Site(marks.ACTIVATION, key) in recording.seen)
    units = units_of_tokens(model.config, run, real)
    reads = pre_activation.read_by(recording, neurons, units)
    if position is None:
        return _NeuronArrays(reads, None, None)
    written = pre_activation.written_by(recording, neurons, units)[:, position]
    logits = jnp.matmul(written, alike(model.unembedding, written).T, precision=PRECISION)
    return _NeuronArrays(reads, *(jax.lax.top_k(sign * logits, min(OUTPUTS, logits.shape[-1])) for sign in (1, -1)))


def _read_neurons(
    explanation: Explanation, chosen: list[ActiveNeuron], arrays: _NeuronArrays, words: Labels
) -> Iterator[ReadNeuron]:
    tokens, reads = len(explanation.tokens), arrays.reads
    terms, zeros = reads.terms, np.zeros(tokens, reads.pre_activations.dtype)

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
            terms=np.stack([terms[key][place, :tokens] if key in terms else zeros for key in explanation.terms]),
            biases=Marked({key: float(part[place]) for key, part in reads.offsets.items()}),
            edges=np.array(reads.edges[place]),
            raised=outputs(arrays.highest, 1, place),
            lowered=outputs(arrays.lowest, -1, place),
        )


def groups_of(
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
    if not chosen:
        return
    # Layers behind the stream that the target reads aren't run, and have no neuron among these.
    switched = {neuron.term for neuron in chosen}
    widths = tuple(
        (term, key, activations.shape[-1])
        for term, (key, activations) in enumerate(explanation.activations.items())
        if stream is None or key in switched
    )
    # One program for any number of groups; the ones that are left over switch nothing off.
    off = np.zeros((-(-len(chosen) // AT_ONCE), AT_ONCE, len(chosen)), bool)
    for group, members in enumerate(by_token.values()):
        off[*divmod(group, AT_ONCE), members] = True
    steps = np.int32(-(-len(by_token) // AT_ONCE))
    places = _places(explanation, chosen)
    values = on_host(_without(model, reader, inputs, places, off, steps, widths, stream)).ravel()
    for (token, members), value in sorted(zip(by_token.items(), values.tolist(), strict=False)):
        yield NeuronGroup(
            name=explanation.tokens[token],
            members=tuple(members),
            predicted=-sum(chosen[place].contribution for place in members),
            measured=value - explanation.value,
        )


@partial(stored_program, static_argnames=("widths", "stream"))
def _without(
    model: Transformer,
    reader: Reader,
    inputs: Inputs,
    neurons: NeuronsAtTokens,
    off: Bool[Array, "steps at_once neurons"],
    steps: Int[Array, ""],
    widths: tuple[tuple[int, Key, int], ...],
    stream: int | None,
) -> Float[Array, "steps at_once"]:
    """Return the number of the model run again with each group of neurons switched off, in the first steps."""
    real: Any = inputs.real
    units = units_of_tokens(model.config, tuple(key for _, key, _ in widths), real)

    def without(off: Bool[Array, "neurons"]) -> Float[Array, ""]:
        edits = {}
        for term, key, width in widths:
            factors = jnp.where(off & (neurons.terms == term), 0.0, 1.0)
            kept = jnp.ones((len(real), width)).at[neurons.tokens, neurons.units].min(factors, mode="drop")
            edits[Site(marks.ACTIVATION, key)] = Edit(units.as_they_lie(key, kept))
        run = edit(lambda x: forward_from(model, x, real, stream).at(stream), edits)
        return reader.read(model, passed_on(real, run(inputs.embedded(model)), stream)).value

    def step(i: Any, values: Float[Array, "steps at_once"]) -> Float[Array, "steps at_once"]:
        return values.at[i].set(jax.vmap(without)(off[i]))

    return jax.lax.fori_loop(0, steps, step, jnp.zeros(off.shape[:2], inputs.embedded(model).dtype))
