"""The record of an explanation."""

from typing import ClassVar

import msgspec

from duat_jax.forms.record import CompletenessRecord, ValueRecord


class ContributionsRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The table of contributions.

    Args:
        embedding: of every token's embedding.
        terms: by term, of every token.
        biases: of every bias, by name.
    """

    embedding: list[float]
    terms: dict[str, list[float]]
    biases: dict[str, float]


class CollapseRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The collapse.

    Args:
        tokens: the contribution of every token by `W(x_0) x_0`.
        bias: that of `b(x_0)`.
        completeness: their sum against the value.
    """

    tokens: list[float]
    bias: float
    completeness: CompletenessRecord


class ActiveNeuronRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One neuron at one token.

    Args:
        term: the term that it belongs to.
        token_index: the index of the token.
        neuron: the index of the neuron.
        contribution: coefficient times activation.
        coefficient: what one unit more of its activation would add, everything held.
        activation: how strongly it fired.
    """

    term: str
    token_index: int
    neuron: int
    contribution: float
    coefficient: float
    activation: float


class ExplanationRecord(ValueRecord, tag="explanation"):
    """The JSON of `duat explain`: everything but single neurons, of which the largest are listed.

    Args:
        contributions: the parts.
        collapse: the contributions through the collapse.
        top: the largest neurons.
    """

    VERSION: ClassVar[int] = 2

    contributions: ContributionsRecord
    collapse: CollapseRecord
    top: list[ActiveNeuronRecord]
