"""The records of the effect of a part of a text."""

from typing import ClassVar

import msgspec

from duat_jax.forms.record import CompletenessRecord
from duat_jax.json_record import Record


class FormRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The difference in the parameters of the closed form; pairs are other tokens, and the tokens of the part.

    Args:
        inputs: by the changed input, through the linear path.
        inner_inputs: by the changed input, through each term.
        path: by the changed linear path.
        bias: by the changed bias.
        outer: by each term's changed outer weights.
        inner: by each term's changed inner weights.
        inner_bias: by each term's changed inner bias.
        completeness: the sum of all parts against the difference.
    """

    inputs: float
    inner_inputs: list[float]
    path: list[float]
    bias: float
    outer: list[list[float]]
    inner: list[list[float]]
    inner_bias: list[float]
    completeness: CompletenessRecord


class ReachRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The reach of attention, by layer.

    Args:
        density: the share of a pattern's entries that carry it.
        distance: the mean distance in tokens, weighted by what is written.
        tokens_read: the number of tokens that are read.
    """

    density: list[float]
    distance: list[float]
    tokens_read: list[float]


class LedgerRecord(Record, tag="part of a text"):
    """The effect of a part of a text on a mean log-probability.

    Args:
        first: the mean log-probability of the first run.
        second: that of the second run.
        difference: the one minus the other.
        completeness: the sum of all parts against the difference.
        notes: caveats on the parts; usually none.
        inputs: the parts of every token's changed embedding; none if the part is masked.
        columns: names of the groups of changed parameters.
        layers: the parts of these, by layer; the last row is the read-out.
        tokens: the parts of attention to every token, by layer.
        within: the parts of dynamic parameters at the part's tokens, by name.
        held: those of others after it, by name.
        discontinuities: parts of what has no slope, by name.
        heads: the parts of each head's mixed values, by layer.
        reads: the parts of the inputs that each layer reads from the part, with nothing held.
        form: the difference in the closed form's parameters.
        again_at: the decrease when a layer reads the second run's part, the model run again; none if not measured.
        again_from: the same with all later layers.
    """

    first: float
    second: float
    difference: float
    completeness: CompletenessRecord
    notes: list[str]
    inputs: list[float] | None
    columns: list[str]
    layers: list[list[float]]
    tokens: list[list[float]]
    within: dict[str, float]
    held: dict[str, float]
    discontinuities: dict[str, float]
    heads: list[list[float]]
    reads: list[float]
    form: FormRecord
    again_at: list[float] | None
    again_from: list[float] | None


class ContextRecord(LedgerRecord, tag="demonstrations"):
    """The JSON of `duat in-context`: the effect of demonstrations on the answer's log-probability.

    Args:
        model: the name of the model.
        text: the prompt.
        reference: the prompt that it is compared with; none if the demonstrations are masked.
        words: the text, token by token, with the tokens of the answer but the last.
        hidden: true for the tokens of the demonstrations.
        answer: the answer; log-probabilities are means over its tokens.
        reach: how far attention reaches.
    """

    VERSION: ClassVar[int] = 2

    model: str
    text: str
    reference: str | None
    words: list[str]
    hidden: list[bool]
    answer: str
    reach: ReachRecord
