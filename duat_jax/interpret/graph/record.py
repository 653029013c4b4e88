"""The record of a graph."""

from typing import ClassVar

import msgspec

from duat_jax.forms.record import CompletenessRecord, ValueRecord
from duat_jax.interpret.attention.record import PairRecord
from duat_jax.interpret.explain.record import ActiveNeuronRecord


class StreamRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A residual stream; at each token `parts` is the sum of the other fields and of what heads moved to it.

    Args:
        name: `embedding`, or the layer after which it stands.
        parts: the part of every token.
        kept: what came from the same token of the stream before; in the first one from its embedding.
        terms: what the layer's terms wrote.
        biases: what the layer's biases and norm offsets added.
    """

    name: str
    parts: list[float]
    kept: list[float]
    terms: list[float]
    biases: list[float]


class MoveRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The moves of a layer's heads from one token to another.

    Args:
        mark: the mark of what the layer's heads mix.
        source_index: the index of the token that it comes from.
        token_index: the index of the token that it goes to.
        heads: what each head moves.
    """

    mark: str
    source_index: int
    token_index: int
    heads: list[float]


class ReadPartRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a neuron's pre-activation.

    Args:
        name: where it comes from.
        part: the part.
    """

    name: str
    part: float


class LogitChangeRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The change of an output's logit by a neuron, everything held.

    Args:
        output: the output.
        change: by how much its logit is higher than without the neuron.
        id: the id of the token, or the index of the class; unknown in JSON of an older version.
    """

    output: str
    change: float
    id: int | None = None


class ReadNeuronRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One neuron at one token, with what it reads and writes.

    Args:
        neuron: which one, with its contribution.
        pre_activation: what its activation function takes.
        reads: the largest parts of the pre-activation, and the sum of all others.
        raised: the outputs whose logits it raises most; empty of an encoder.
        lowered: those that it lowers most.
    """

    neuron: ActiveNeuronRecord
    pre_activation: float
    reads: list[ReadPartRecord]
    raised: list[LogitChangeRecord]
    lowered: list[LogitChangeRecord]


class NeuronGroupRecord(msgspec.Struct, forbid_unknown_fields=True):
    """Neurons at one token, switched off together.

    Args:
        name: the token.
        members: their places in the list of neurons.
        predicted: the change of the value by the table of contributions, everything else held.
        measured: the change when the model is run again without them.
    """

    name: str
    members: list[int]
    predicted: float
    measured: float


class HeadScoreRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The reason why a head attends from one token to another one, rather than to a third.

    Args:
        layer: the layer.
        head: the head.
        query: the index of the token that attends.
        key: the index of the token that it attends to.
        contrast: the index of the other token that it attends to most.
        value: the difference of the two scores, from the forward pass.
        completeness: the sum of all pairs of sources against it.
        top: the largest pairs of sources.
    """

    layer: int
    head: int
    query: int
    key: int
    contrast: int
    value: float
    completeness: CompletenessRecord
    top: list[PairRecord]


class GraphRecord(ValueRecord, tag="graph"):
    """The JSON of `duat graph`.

    Args:
        completeness: of the stream's token whose sum is furthest from it, relative to its tolerance.
        streams: the streams, in the order of computation.
        moves: what heads move along the largest edges, by layer.
        other_moves: by layer, of every token, what each head moves to it along all other edges.
        after: what terms and biases after the last stream add to the value.
        neurons: the neurons with the largest contributions.
        groups: these neurons by their tokens.
        scores: why the heads with the largest moves attend where they do.
        notes: what to know of the streams though they sum; none as a rule.
    """

    VERSION: ClassVar[int] = 3

    streams: list[StreamRecord]
    moves: list[MoveRecord]
    other_moves: dict[str, list[list[float]]]
    after: float
    neurons: list[ReadNeuronRecord]
    groups: list[NeuronGroupRecord]
    scores: list[HeadScoreRecord]
    notes: list[str] = msgspec.field(default_factory=list)
