"""The record of the difference between two models."""

from typing import ClassVar

import msgspec

from duat_jax.forms.record import CompletenessRecord, TargetRecord
from duat_jax.json_record import Record


class RunAgainRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A parameter with a large part, and runs of the model in which it is exchanged.

    Args:
        name: the parameter; `"together"` for all of the list at once.
        part: its part of the difference.
        set_back: the number of the model minus that with this parameter of the reference.
        put_in: the number of the reference with this parameter of the model, minus that of the reference.
    """

    name: str
    part: float
    set_back: float
    put_in: float


class UnitPartRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A neuron, a head or a row of an embedding with a large part.

    Args:
        weights: the weights of a layer, or the embedding, that it belongs to.
        unit: its name, such as `"neuron 7"`; of a row the token's text beside its number.
        part: the part of its weights in the difference.
    """

    weights: str
    unit: str
    part: float


class WeightFlowRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The place of the difference, layer by layer.

    Args:
        tokens: of each stream, the part of what moved at each token.
        later: of each stream, the part of the weights after it.
    """

    tokens: list[list[float]]
    later: list[float]


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The matrices that a budget gives eight bits, and losses on fresh text, in nats a token.

    Args:
        bits: of all other matrices.
        share: the largest share of the matrices' weights that may have eight bits.
        finer: the matrices that get them, the one with the largest part for each weight first.
        original: the loss of the model that isn't rounded.
        none: that with no matrix in eight bits.
        chosen: that with the chosen ones.
        random: the losses with others, drawn at random within the same budget.
        all: that with all matrices in eight bits.
    """

    bits: int
    share: float
    finer: list[str]
    original: float
    none: float
    chosen: float
    random: list[float]
    all: float


class ModelDiffRecord(Record, tag="model diff"):
    """The JSON of `duat diff`.

    Args:
        model: the name of the model, `A`.
        reference: the name of the model that it is compared with, `B`.
        family: their checkpoint family.
        texts: the number of texts over which numbers are means.
        tokens: the text, token by token; empty of several texts.
        target: the number: in words, and by what it reads.
        dtype: of everything computed.
        value: the number of the model.
        reference_value: that of the reference.
        difference: the model's minus the reference's.
        parts: the part of every parameter, by its name.
        intervals: of several texts, the ends of each part's 95 % interval by Student's t over the texts.
        first_order: the same to first order at the reference.
        units: the neurons, heads and rows of embeddings with the largest parts.
        cancellation: the sum of the sizes of all parts, as a multiple of the difference; 1 of a difference of zero.
        again: the parameters with the largest parts, and runs in which they are exchanged.
        flow: where the difference is, layer by layer; none of several texts.
        discontinuities: parts of what has no slope, by name.
        completeness: of each text, the sum of all parts against the difference.
        notes: caveats on the parts; usually none.
        budget: the matrices that a budget gives eight bits; none without one.
    """

    VERSION: ClassVar[int] = 2

    model: str
    reference: str
    family: str
    texts: int
    tokens: list[str]
    target: TargetRecord
    dtype: str
    value: float
    reference_value: float
    difference: float
    parts: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    first_order: dict[str, float]
    units: list[UnitPartRecord]
    cancellation: float
    again: list[RunAgainRecord]
    flow: WeightFlowRecord | None
    discontinuities: dict[str, float]
    completeness: list[CompletenessRecord]
    notes: list[str]
    budget: Budget | None = None
