"""The fields of `config.json` that Hugging Face `transformers` reads, derived from its source."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from duat_jax.models.checkpoint.json_file import read_json

FILE = Path(__file__).with_suffix(".json")
"""The table, which `python -m tests.parity.fields` writes."""

SWITCHES = frozenset(
    [
        "alibi",
        "attention_multiplier",
        "attn_logit_softcapping",
        "clip_qkv",
        "dual_chunk_attention_config",
        "embedding_multiplier",
        "embedding_size",
        "final_logit_softcapping",
        "interpolate_factor",
        "full_attn_mod",
        "is_causal",
        "logit_scale",
        "logits_scaling",
        "mrope_section",
        "mup_enabled",
        "parallel_attn",
        "position_embedding_type",
        "pruned_heads",
        "query_pre_attn_scalar",
        "residual_multiplier",
        "rope_interleave",
        "rope_interleaved",
        "use_alibi",
        "use_bidirectional_attention",
        "use_mrope",
        "use_parallel_residual",
        "use_qk_norm",
        "use_sliding_window",
    ]
)
"""Fields that other families or other programs read and that no tensor shows: at a value that isn't off, the weights
may have been trained for another computation than the reference's."""

TRAINING = "drop"
"""A part of the names of fields that count in training alone."""


class ReferenceFields(NamedTuple):
    """The fields that the reference implementation reads for a family.

    Args:
        read: these fields, and the values at which they change nothing: the reference's defaults, if known.
        unread: the fields that it declares and doesn't read for what is supported here.
    """

    read: Mapping[str, Any]
    unread: frozenset[str]

    def changes(self, name: str, value: Any) -> bool:
        """Return whether a field that the family's reader doesn't read may change the computation.

        Args:
            name: the field.
            value: its value.
        """
        if name in self.read:
            default = self.read[name]
            usual = default is not None and value == default and isinstance(value, bool) == isinstance(default, bool)
            return TRAINING not in name and not usual
        return name in SWITCHES and bool(value) and value != "absolute"


@cache
def _tables() -> dict[str, Any]:
    return read_json(FILE)


def reference_of(family: str) -> ReferenceFields | None:
    """Return the fields that the reference implementation reads for a family, or `None` if it doesn't have the family.

    Example:
        >>> reference_of("llama").changes("mlp_bias", True), reference_of("llama").changes("is_llama_config", True)
        (True, False)
    """
    tables = _tables()
    if family not in tables["families"]:
        return None
    both = (tables["every model"], tables["families"][family])
    return ReferenceFields(both[0]["read"] | both[1]["read"], frozenset(both[0]["unread"] + both[1]["unread"]))
