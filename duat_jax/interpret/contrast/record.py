"""The record of a contrast."""

from typing import ClassVar

import msgspec

from duat_jax.forms.record import CompletenessRecord, InputRecord, PredictionRecord, ReferenceRecord


class HeadRecord(msgspec.Struct, forbid_unknown_fields=True):
    """An attention head at one token.

    Args:
        mixed: the mark of what the layer's heads mix.
        token_index: the index of the token that it is carried to.
        head: the index of the head.
        contribution: its part of the difference.
    """

    mixed: str
    token_index: int
    head: int
    contribution: float


class NeuronRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A neuron at one token.

    Args:
        term: the term that it belongs to.
        token_index: the index of the token.
        neuron: the index of the neuron.
        contribution: its part of the difference.
    """

    term: str
    token_index: int
    neuron: int
    contribution: float


class HeadRunsRecord(msgspec.Struct, forbid_unknown_fields=True):
    """An attention head at one token, and the changes of the number where the model is run again with it edited.

    Args:
        head: the head.
        replaced: the change where its output is that on the reference; minus its part predicts it.
        predicted: the change that the contributions predict where its output is zero.
        removed: the change where its output is zero.
    """

    head: HeadRecord
    replaced: float
    predicted: float
    removed: float


class ContrastRecord(InputRecord, tag="contrast"):
    """The JSON of `duat contrast`: everything but single neurons, of which the largest are listed.

    Args:
        dtype: of everything computed.
        value: the number on the input.
        predictions: what the model says on the input; empty for an encoder.
        references: what it is contrasted with.
        difference: the value minus the mean of the references' values.
        completeness: the sum of all parts against the difference.
        notes: what to know of the parts though they sum; none as a rule.
        flow: the parts of every token in the stream: the input's, `embedding`, and after each layer, `layers.0` and so
            on; of an encoder with a decoder `encoder.layers.0` and, counted on, `decoder.layers.2`.
        heads: by layer, of every token, the parts of what each head mixes.
        moved: parts of what was held and moved, by name.
        discontinuities: parts of what has no slope, by name.
        top_heads: the largest heads.
        top_neurons: the largest neurons.
        head_runs: the largest heads, run again, if that was asked for.
    """

    VERSION: ClassVar[int] = 3

    dtype: str
    value: float
    predictions: list[PredictionRecord]
    references: list[ReferenceRecord]
    difference: float
    completeness: CompletenessRecord
    notes: list[str]
    flow: dict[str, list[float]]
    heads: dict[str, list[list[float]]]
    moved: dict[str, float]
    discontinuities: dict[str, float]
    top_heads: list[HeadRecord]
    top_neurons: list[NeuronRecord]
    head_runs: list[HeadRunsRecord] = msgspec.field(default_factory=list)
