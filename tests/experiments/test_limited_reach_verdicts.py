"""The verdicts on networks of limited reach, and on fine-tuning to longer texts, on invented results."""

import numpy as np
import pytest

from experiments.long_context import networks, trained_verdicts
from experiments.long_context.networks import FULL, KINDS


def units(mean, spread=0.002, seeds=3, texts=40):
    """Return numbers of every seed and text, whose means over each differ by the spread."""
    by_seed, by_text = (np.linspace(-1, 1, n) * spread for n in (seeds, texts))
    return mean + by_seed[:, None] + by_text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (units(0.05), "confirmed"),
        (units(-0.05), "refuted"),
        (units(0.004, spread=0.001), "refuted"),
        (units(0.02, spread=0.03), "undecided"),
    ],
)
def test_differences_need_both_intervals_and_one_sign(values, expected):
    assert trained_verdicts.compared(values) == expected


def test_a_single_text_decides_nothing():
    """All seeds have the same positive mean, which comes from one text of forty."""
    one_text = np.where(np.arange(40) < 1, 30.0, -0.5)
    assert one_text.mean() > 0 and not trained_verdicts.above(np.tile(one_text, (3, 1)))


def seeds_of(**of):
    return {"seeds": [{name: values[seed] for name, values in of.items()} for seed in range(3)]}


def verdicts_of(gain=0.1, pattern=0.05, recalled=1.0, interpolated=2.6, groups=2.4, shifted=2.41, short=2.4):
    recall = [{"16": recalled, "16, first copy": 3.0}] * 3
    late = {networks.PATTERN: 2 + pattern, networks.TOKENS: 2.1}
    kinds = {
        kind: seeds_of(gain=units(gain if kind == FULL else 0.0, 0.0), late=units(late.get(kind, 2.0)), recall=recall)
        for kind in KINDS
    }
    losses = {"not fine-tuned": 3.0, "not fine-tuned, interpolated": interpolated}
    for way, loss in {"full attention": 2.4, "groups": groups, "shifted groups": shifted}.items():
        losses |= {f"{way}, all weights": loss, f"{way}, adapters": loss}
    losses["texts of 128 tokens, all weights"] = short
    ways = {name: seeds_of(late=units(loss)) for name, loss in losses.items()}
    lines = trained_verdicts.verdicts({"kinds": kinds, "longer": ways})[2:]
    return {cells[0].strip("| "): cells[1] for cells in (line.split(" | ") for line in lines)}


REACHES_FAR, MOVES = "by reach: full attention gains beyond 32 bytes", "by moving patterns"
SUFFICE, MATTERS, TRAINING = "all weights, shifted groups suffice", "all weights, the shift matters", "more training"


@pytest.mark.parametrize(
    ("numbers_of_study", "expected"),
    [
        ({}, {REACHES_FAR: "confirmed", MOVES: "confirmed", SUFFICE: "confirmed", MATTERS: "refuted"}),
        ({"gain": 0.0, "recalled": 2.0}, {REACHES_FAR: "undecided", MOVES: "undecided"}),
        ({"gain": 0.0, "pattern": 0.0}, {REACHES_FAR: "refuted", MOVES: "refuted"}),
        ({"shifted": 2.5, "groups": 2.6}, {SUFFICE: "refuted", MATTERS: "confirmed", TRAINING: "refuted"}),
        ({"groups": 2.6, "short": 2.6}, {MATTERS: "confirmed", "check: groups": "holds", TRAINING: "refuted"}),
        ({"short": 2.42}, {TRAINING: "confirmed", "check: groups": "fails"}),
        ({"interpolated": 2.4}, {SUFFICE: "undecided", MATTERS: "undecided", TRAINING: "undecided"}),
    ],
)
def test_verdicts_on_trained_networks_follow_their_bounds(numbers_of_study, expected):
    found = verdicts_of(**numbers_of_study)
    for beginning, said in expected.items():
        assert [verdict for name, verdict in found.items() if beginning in name] == [said], beginning
