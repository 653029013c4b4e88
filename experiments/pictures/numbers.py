"""The numbers of the pictures at the top of the pages of results: fields of the studies, as numbers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.fields import fields_of
from experiments.kept_results import kept
from experiments.long_context.afterwards import IN_GROUPS
from experiments.long_context.networks import NONE
from experiments.long_context.trained_verdicts import NOT_TUNED

Numbers = dict[str, Any]
"""Numbers of a picture by name, or estimates with the ends of their intervals."""


def estimate(text: str) -> list[float]:
    """Return a number as a page writes it, with the ends of its interval, or itself three times.

    Example:
        >>> estimate("+0.50 [+0.41, +0.62]"), estimate("27%")
        ([0.5, 0.41, 0.62], [27.0, 27.0, 27.0])
    """
    found = [float(number) for number in re.findall(r"[+-]?\d+\.?\d*(?:e[+-]?\d+)?", text.replace(",", " "))[:3]]
    return found if len(found) == 3 else found[:1] * 3


def _of(study: str, field: str, names: Iterable[str] | Mapping[str, str]) -> dict[str, list[float]]:
    """Return estimates by name, of the field that has the name, or what the name stands for, in its braces."""
    fields = fields_of(study)
    named = names if isinstance(names, Mapping) else {name: name for name in names}
    return {shown: estimate(fields[field.format(name)]) for shown, name in named.items()}


DISTANCES = ("1 to 3", "4 to 15", "16 to 63", "64 to 255", "256 to 1,023", "1,024 to 4,095", "4,096 to 16,383")


def long_context() -> Numbers:
    """Return what is read of texts of 8,192 tokens, and what replaced tokens change in them, by distance."""
    weights = {name: f"{name}, left out" for name in ("SmolLM2-135M", "shuffled text", "equal shares")}
    spans = {"the text": "after an eighth", "shuffled text": "after an eighth, shuffled text"}

    def by_distance(heading: str, rows: Mapping[str, str]) -> Numbers:
        return {name: _of("long_context", f"{heading} / 8,192, {row} / {{}}", DISTANCES) for name, row in rows.items()}

    return {
        "read": by_distance("What is read, by norms", weights),
        "changed": by_distance("Divergence after replaced tokens, in thousandths of a nat", spans),
        "lost": _of(
            "long_context",
            "Loss after replaced tokens, in thousandths of a nat / 8,192, all but the last quarter and the very first"
            " / {}",
            DISTANCES[:-1],
        ),
    }


def limited_reach() -> Numbers:
    """Return the losses of networks trained with windows, convolutions and attention, and after fine-tuning."""
    trained, study = kept("long_context_trained"), "long_context_trained"
    kinds = [kind for kind in trained["kinds"] if kind != NONE]
    ways = [way for way in trained["longer"] if not way.startswith(NOT_TUNED)]
    in_groups = (
        "Afterwards: further learning rates and equal texts / {} − full attention, all weights / loss of the first"
    )
    tuned = _of(study, in_groups, [IN_GROUPS]) | _of(study, "Losses after fine-tuning / {} / 128 and more", ways)
    axis = "loss in nats a byte"
    return {
        "bytes 128 to 191 of a text": [axis, _of(study, "Loss by position / {} / 128 to 191", kinds)],
        "bytes 128 to 511, fine-tuned with": [axis, tuned],
    }
