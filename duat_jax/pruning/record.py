"""The record of pruned models."""

import msgspec

from duat_jax.json_record import Record


class WholeRecord(msgspec.Struct, forbid_unknown_fields=True):
    """The model before it is pruned.

    Args:
        loss: its loss on held-out text, in nats per token.
        parameters: the number of its parameters.
    """

    loss: float
    parameters: int


class PrunedRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A pruned model.

    Args:
        method: the ranking.
        compensation: what is done about the removed ones' mean effect.
        fraction: the fraction that is removed.
        budget: how the fraction is spread over layers.
        what: `"neurons"` or `"layers"`.
        loss: its loss on held-out text, in nats per token.
        neurons: the number of neurons of each layer, where the model is saved.
        parameters: the number of its parameters, where it is saved.
    """

    method: str
    compensation: str
    fraction: float
    budget: str
    what: str
    loss: float
    neurons: list[int] | None = None
    parameters: int | None = None


class PruningRecord(Record, tag="pruning"):
    """The JSON of `duat prune`.

    Args:
        model: the name of the model.
        seed: the seed of the draw of texts.
        pieces: the number of pieces of text to calibrate on.
        tokens: the number of tokens of a piece.
        layers: the layers that are pruned; none for all.
        whole: the model before.
        pruned: the pruned models.
    """

    model: str
    seed: int
    pieces: int
    tokens: int
    layers: list[int] | None
    whole: WholeRecord
    pruned: list[PrunedRecord]
