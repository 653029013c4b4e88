"""The records of comparisons of attribution methods."""

from typing import ClassVar

import msgspec

from duat_jax.forms.record import TargetRecord
from duat_jax.json_record import Record


class EstimateRecord(msgspec.Struct, forbid_unknown_fields=True):
    """An estimate with its confidence interval.

    Args:
        value: the estimate.
        low: the lower end of the interval.
        high: the upper end.
    """

    value: float
    low: float
    high: float


class CaseRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A pair of texts with the next token of each.

    Args:
        clean: the text.
        corrupted: the same with what decides flipped.
        right: what follows the text.
        wrong: what follows the corrupted one.
    """

    clean: str
    corrupted: str
    right: str
    wrong: str


class CircuitUnitRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A unit of a circuit.

    Args:
        layer: its layer, from 0; of a stream the number of layers before it.
        position: its token; absent of a neuron at all tokens.
        token: the text of this token in the task's example.
        unit: the neuron or head; absent of a stream.
        score: the mean of its scores over prompts.
    """

    layer: int
    position: int | None
    token: str | None
    unit: int | None
    score: float


class RefinementRecord(msgspec.Struct, forbid_unknown_fields=True):
    """An optimisation of a circuit on the metric, and the circuit by scores before it.

    Args:
        steps: the number of steps.
        prompts: how many prompts scored the units and were optimised on; all others measure the circuits.
        kept: the share of the effect with the circuit by scores kept, at each of `fractions`.
        removed: the same with this circuit removed.
    """

    steps: int
    prompts: int
    kept: list[float]
    removed: list[float]


class CircuitRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One circuit for all prompts of a task: the units with the largest absolute mean scores, or a refined ranking.

    Args:
        method: the method that scored them.
        size: the size of the listed circuit, as a fraction of all units.
        scored: the number of all units.
        kept: the share of the effect with this circuit kept, at each of `fractions`, the model run again.
        removed: the same with this circuit removed.
        units: its units, those that rank highest first.
        refinement: of a refined ranking: how, and the circuit before.
    """

    method: str
    size: float
    scored: int
    kept: list[float]
    removed: list[float]
    units: list[CircuitUnitRecord]
    refinement: RefinementRecord | None = None


class TaskRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The results of one task.

    Args:
        prompts: the number of prompts that the model answers rightly.
        read: the number of prompts that were tried.
        tokens: the number of tokens of a prompt.
        example: a prompt.
        units: for each kind of units and each method, its statistics with intervals, and the curves `kept` and
            `removed`; each prompt has its own circuit.
        circuits: for each kind of units one circuit for all prompts, of the first method.
    """

    prompts: int
    read: int
    tokens: int
    example: CaseRecord
    units: dict[str, dict[str, dict[str, EstimateRecord | list[float]]]]
    circuits: dict[str, CircuitRecord] = {}


class CircuitsRecord(Record, tag="circuits"):
    """The JSON of `duat circuit`.

    Args:
        fractions: the sizes of circuits, as fractions of all units.
        tasks: the results of each task.
        mean: the same over all tasks.
        model: the name of the model; only in the JSON of the command, as what follows.
        seed: the seed of the draw.
        others: what other units are set to: `"corrupted"` or `"mean"`.
    """

    fractions: list[float]
    tasks: dict[str, TaskRecord]
    mean: dict[str, dict[str, dict[str, EstimateRecord | list[float]]]]
    model: str | None = None
    seed: int | None = None
    others: str | None = None


class FaithfulnessRecord(Record, tag="faithfulness"):
    """The JSON of `duat faithfulness`.

    Args:
        texts: the number of texts.
        tokens: their mean number of removable tokens.
        value: the mean metric on the whole texts.
        sizes: the fractions of tokens that are taken away.
        tables: for each way to take tokens away and each method, `most_first`, `least_first`, `deletion`, `insertion`,
            `gaps`, `ahead`, `spearman` and `kendall`.
        costs: the time of each method for a text's scores, in forward passes.
        seconds: the time for all texts.
        model: the name of the model; only in the JSON of the command, as what follows.
        target: the metric, which reads another token or another text of each text.
        seed: the seed of the draw.
    """

    VERSION: ClassVar[int] = 2

    texts: int
    tokens: float
    value: float
    sizes: list[float]
    tables: dict[str, dict[str, dict[str, EstimateRecord | list[float]]]]
    costs: dict[str, float]
    seconds: float
    model: str | None = None
    target: TargetRecord | None = None
    seed: int | None = None
