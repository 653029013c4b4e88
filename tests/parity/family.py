"""A family of checkpoints: its base, and every switch of its `config.json` that changes what it computes."""

from typing import Any, NamedTuple

Settings = dict[str, Any]

ABSENT = object()
"""A field that is left out."""

TEXT = {"vocab_size": 61, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}


class Family(NamedTuple):
    """One family of checkpoints.

    Args:
        layer: the reference's class of a layer.
        heads: the reference's class by what our model reads out.
        base: `config.json` of its base case.
        switches: fields that are changed, by the name of what they change.
        classes: the same for what only a classifier reads.
    """

    layer: str
    heads: dict[str, str]
    base: Settings
    switches: dict[str, Settings]
    classes: dict[str, Settings] = {}  # noqa: RUF012


def causal(prefix: str) -> dict[str, str]:
    """Return the heads of a decoder.

    Args:
        prefix: what the names of its classes begin with.
    """
    return {
        "logits": f"{prefix}ForCausalLM",
        "classes": f"{prefix}ForSequenceClassification",
        "hidden": f"{prefix}Model",
    }
