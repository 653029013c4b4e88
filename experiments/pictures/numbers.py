"""The numbers of the pictures at the top of the pages of results: fields of the studies, as numbers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.bits.report import AT_RANDOM
from experiments.bits.scores import SCORES
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


PAIRS = "Pairs of sentences"


def faithfulness() -> Numbers:
    """Return how far every method is behind the secant on pairs of sentences, with its cost, in both ways."""
    fields = fields_of("faithfulness")
    ahead = re.compile(rf"{PAIRS}, masked / (.*) / the first is ahead by$")
    methods = [found[1] for name in fields if (found := ahead.match(name)) and found[1] != "secant, mask"]
    both = {
        removal: {
            f"{method} ({fields[f'{PAIRS}, masked / {method} / cost']})": estimate(
                fields[f"{PAIRS}, {removal} / {method} / the first is ahead by"]
            )
            for method in methods
        }
        for removal in ("masked", "removed")
    }
    order = sorted(both["masked"], key=lambda method: both["masked"][method][0])
    return {removal: {method: of_methods[method] for method in order} for removal, of_methods in both.items()}


def circuits() -> Numbers:
    """Return every method's cost, and how much of the effect its circuits keep."""
    circuits, costs = fields_of("circuits"), fields_of("attribution")
    mean = re.compile(r"Every method / (.*) / mean$")
    methods = [found[1] for name in circuits if (found := mean.match(name))]
    cost = "costs / {} / plain forward passes [quartiles] / value"
    return {
        method: [float(costs[cost.format(method)]), *estimate(circuits[f"Every method / {method} / mean"])]
        for method in methods
        if cost.format(method) in costs
    }


def ground_truth() -> Numbers:
    """Return how well every method ranks the units of known circuits, for both read-outs."""
    fields = fields_of("ground_truth")
    methods = [name.split(" / ")[1] for name in fields if name.startswith("alone / ") and name.endswith(" / mean")]
    return {read: _of("ground_truth", f"{read} / {{}} / mean", methods) for read in ("alone", "ignoring")}


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


def bits() -> Numbers:
    """Return how much of the loss by rounding every score's choice takes back."""
    fields = fields_of("bits")
    named = {score: estimate(fields[f"The loss that is taken back / {score} / all"]) for score in (*SCORES, AT_RANDOM)}
    order = sorted(named, key=lambda score: -named[score][0])
    return {
        "mean over models, bits and budgets": ["share of the loss that is taken back", {of: named[of] for of in order}]
    }
