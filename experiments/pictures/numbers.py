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
