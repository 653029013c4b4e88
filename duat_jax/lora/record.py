"""The record of the change of a metric by adapters."""

from typing import Any, ClassVar

import msgspec

from duat_jax.forms.record import ChangeRecord, CompletenessRecord, PredictionRecord
from duat_jax.json_record import Record


class ColumnsRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the metric, and the three columns of its change.

    Args:
        base: the part without adapters.
        moved: its change by the adapted run's dynamic parameters.
        adapter: its change by the adapted weights.
        interaction: the change of both together, minus the two.
    """

    base: float
    moved: float
    adapter: float
    interaction: float


class AdapterRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The effect of one adapter.

    Args:
        name: the stored name of the adapted layer.
        part: its part of the difference.
        first_order: the same to first order at the base.
        alone: the change when the model is run with this adapter alone.
    """

    name: str
    part: float
    first_order: float
    alone: float


class ChangedNeuronRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A neuron whose part changed.

    Args:
        term: the term that it belongs to.
        token_index: the index of the token.
        neuron: the index of the neuron.
        change: the sum of the three columns of its change.
        base: its part without adapters.
        moved: its change by the adapted run's dynamic parameters.
        adapter: its change by the adapted weights.
        interaction: the change of both together, minus the two.
    """

    term: str
    token_index: int
    neuron: int
    change: float
    base: float
    moved: float
    adapter: float
    interaction: float


class LoraChangeRecord(ChangeRecord, tag="lora change"):
    """The JSON of `duat lora diff`.

    Args:
        predictions: the model's predictions without adapters and with them.
        rows: of embeddings, each term and the biases.
        totals: the sums of the three columns.
        adapters: the effect of each adapter.
        first_order: the whole change to first order in the adapters.
        first_order_held: that of the adapters' column.
        discontinuities: parts of what has no slope, by name.
        completeness: the sum of all parts against the difference.
        by_adapter: the sum of the adapters' parts against the difference.
        corners: of the tables of the four runs.
        notes: caveats on the parts; usually none.
        top_neurons: the neurons whose parts changed most.
        moved: the relative changes of the parameters of the closed form, by name; only in the JSON of the command.
    """

    VERSION: ClassVar[int] = 2

    predictions: list[list[PredictionRecord]]
    rows: dict[str, ColumnsRecord]
    totals: dict[str, float]
    adapters: list[AdapterRecord]
    first_order: float
    first_order_held: float
    discontinuities: dict[str, float]
    completeness: CompletenessRecord
    by_adapter: CompletenessRecord
    corners: list[CompletenessRecord]
    notes: list[str]
    top_neurons: list[ChangedNeuronRecord]
    moved: dict[str, dict[str, Any]] | None = None


class PiecesRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The numbers of pieces of text.

    Args:
        trained_on: pieces that adapters are trained on.
        held_out: pieces that they are measured on.
    """

    trained_on: int
    held_out: int


class LoraTrainingRecord(Record, tag="LoRA training"):
    """The JSON of `duat lora train`.

    Args:
        model: the name of the model.
        family: its checkpoint family.
        adapters: the stored names of the adapted layers.
        parameters: the number of trained parameters.
        rank: the rank of each adapter.
        alpha: the scale of the adapters times their rank.
        steps: the number of steps.
        batch: the number of pieces in a step.
        rate: the learning rate.
        seed: of the initial weights and of the order of the text.
        length: the number of tokens of a piece.
        pieces: the numbers of pieces.
        losses: the loss at each step, in nats per token.
        held_out_before: the loss on held-out text before training.
        held_out_after: the same after it.
    """

    model: str
    family: str
    adapters: list[str]
    parameters: int
    rank: int
    alpha: float
    steps: int
    batch: int
    rate: float
    seed: int
    length: int
    pieces: PiecesRecord
    losses: list[float]
    held_out_before: float
    held_out_after: float
