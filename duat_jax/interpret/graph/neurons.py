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
from duat_jax.interpret.graph.flow import recorded
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
from duat_jax.transform.recording import Recording
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
    stream, places = question.target.stream, places_of(explanation, [chosen])
    position = position_of(model, explanation, stream)
    arrays = on_host(_recorded_reads(model, text, places, position, tuple(explanation.terms), stream))
    (read,) = read_neurons(explanation, [chosen], arrays, words)
    return explanation, read


@partial(stored_program, static_argnames=("terms", "stream"))
def _recorded_reads(
    model: Transformer,
    inputs: Inputs,
    neurons: NeuronsAtTokens,
    position: Int[Array, ""] | None,
    terms: tuple[Key, ...],
    stream: int | None,
) -> "NeuronArrays":
    """Record a model, and return what neurons read and write."""
    return reads_of(model, inputs, recorded(model, inputs, stream), neurons, position, terms)


def position_of(model: Transformer, explanation: Explanation, stream: int | None) -> int | None:
    """Return the position at which neurons raise and lower outputs, if the number is read where outputs are."""
    says = model.config.head.kind in ("next token", "masked token") and stream is None
    return explanation.target.position if says else None


class NeuronArrays(NamedTuple):
    """Arrays of neurons: what they read, and the changes and indices of the outputs that they raise and lower most."""

    reads: Reads
    highest: tuple[Float[Array, "neurons outputs"], Int[Array, "neurons outputs"]] | None
    lowest: tuple[Float[Array, "neurons outputs"], Int[Array, "neurons outputs"]] | None


def places_of(explanation: Explanation, chosen: list[ActiveNeuron]) -> NeuronsAtTokens:
    """Return the neurons by their terms, by the numbers of their tokens, and by their own."""
    terms: Any = tuple(np.array([each.term == key for each in chosen]) for key in explanation.terms)
    tokens, units = np.array([(each.token_index, each.neuron) for each in chosen], np.int32).T
    return NeuronsAtTokens(terms, tokens, units)


def reads_of(
    model: Transformer,
    inputs: Inputs,
    recording: Recording,
    neurons: NeuronsAtTokens,
    position: Int[Array, ""] | None,
    terms: tuple[Key, ...],
) -> NeuronArrays:
    """Return what neurons read and write, from the recording of a model."""
    # Layers behind the stream that the target reads aren't run.
    run = tuple(key for key in terms if Site(marks.ACTIVATION, key) in recording.seen)
    real: Any = inputs.real
    units = units_of_tokens(model.config, run, real)
    reads = pre_activation.read_by(recording, neurons, units)
    if position is None:
        return NeuronArrays(reads, None, None)
    written = pre_activation.written_by(recording, neurons, units)[:, position]
    logits = jnp.matmul(written, alike(model.unembedding, written).T, precision=PRECISION)
    return NeuronArrays(reads, *(jax.lax.top_k(sign * logits, min(OUTPUTS, logits.shape[-1])) for sign in (1, -1)))


def read_neurons(
    explanation: Explanation, chosen: list[ActiveNeuron], arrays: NeuronArrays, words: Labels
) -> Iterator[ReadNeuron]:
    """Yield neurons with what they read and write."""
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
    places = places_of(explanation, chosen)
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

    def without(x: Float[Array, "tokens features"], off: Bool[Array, "neurons"]) -> Float[Array, ""]:
        edits = {}
        for term, key, width in widths:
            factors = jnp.where(off & neurons.terms[term], 0.0, 1.0)
            kept = jnp.ones((len(real), width)).at[neurons.tokens, neurons.units].min(factors, mode="drop")
            edits[Site(marks.ACTIVATION, key)] = Edit(units.as_they_lie(key, kept))
        run = edit(lambda x: forward_from(model, x, real, stream).at(stream), edits)
        return reader.read(model, passed_on(real, run(x), stream)).value

    # With embeddings for each group, the kernels before the first edit are those of later layers.
    x = inputs.embedded(model)
    of_groups = jnp.broadcast_to(x, (AT_ONCE, *x.shape))

    def step(i: Any, values: Float[Array, "steps at_once"]) -> Float[Array, "steps at_once"]:
        return values.at[i].set(jax.vmap(without)(of_groups, off[i]))

    return jax.lax.fori_loop(0, steps, step, jnp.zeros(off.shape[:2], x.dtype))
