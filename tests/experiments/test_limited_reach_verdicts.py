"""The verdicts on networks of limited reach, and on fine-tuning to longer texts, on invented results."""

import numpy as np
import pandas as pd
import pytest
from helpers import near

from experiments.estimate import Method, estimate
from experiments.long_context import longlora, networks, trained
from experiments.long_context.networks import FULL, KINDS
from experiments.long_context.units import FURTHER, STATED, both, compared, over_texts, positive, units
from experiments.run import frames_of
from experiments.table import rows_of


def numbers(mean, spread=0.002, seeds=3, texts=40):
    """Return numbers of every seed and text, whose means over each differ by the spread."""
    by_seed, by_text = (np.linspace(-1, 1, n) * spread for n in (seeds, texts))
    return mean + by_seed[:, None] + by_text


def estimates(values):
    return [of.estimate({}) for of in both("", lambda frames: values)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (numbers(0.05), "confirmed"),
        (numbers(-0.05), "refuted"),
        (numbers(0.004, spread=0.001), "refuted"),
        (numbers(0.02, spread=0.03), "undecided"),
    ],
)
def test_differences_need_both_intervals(values, expected):
    assert compared(*estimates(values)) == expected


def test_a_single_text_decides_nothing():
    """All seeds have the same positive mean, which comes from one text of forty."""
    one_text = np.where(np.arange(40) < 1, 30.0, -0.5)
    values = np.tile(one_text, (3, 1))
    assert one_text.mean() > 0 and not positive(*estimates(values))
    assert over_texts(values).method == Method.STUDENT


def test_an_interval_over_three_seeds_has_every_seed_in_it():
    """So that no seed is on the other side of a bound than the interval, as the rule asks."""
    for values in np.random.default_rng(0).standard_normal((200, 3)) ** 3:
        found = estimate(values)
        assert found.low < values.min() and values.max() < found.high


def rows_of_seeds(network, rates=STATED, **of):
    return [
        {"network": network, "rates": rates, "seed": seed, **{name: [*values[seed]] for name, values in of.items()}}
        for seed in range(3)
    ]


def verdicts_of(gain=0.1, pattern=0.05, recalled=1.0, interpolated=2.6, groups=2.4, shifted=2.41, short=2.4):
    late = {networks.PATTERN: 2 + pattern, networks.TOKENS: 2.1}
    kinds = [
        row
        for kind in KINDS
        for row in rows_of_seeds(
            kind,
            gain=numbers(gain if kind == FULL else 0.0, 0.0),
            late=numbers(late.get(kind, 2.0)),
            recall=np.full((3, 2), recalled),
            **{"recall, first copy": np.full((3, 2), 3.0)},
        )
    ]
    losses = {"not fine-tuned": 3.0, "not fine-tuned, interpolated": interpolated}
    for way, loss in {"full attention": 2.4, "groups": groups, "shifted groups": shifted}.items():
        losses |= {f"{way}, all weights": loss, f"{way}, adapters": loss}
    losses["texts of 128 tokens, all weights"] = short
    ways = [row for name, loss in losses.items() for row in rows_of_seeds(name, late=numbers(loss))]
    return {
        prediction.name: prediction.verdict({"networks": pd.DataFrame(rows)})
        for study, rows in ((trained.STUDY, kinds), (longlora.STUDY, ways))
        for prediction in study.predictions
    }


REACHES_FAR, MOVES, REACH = "full attention gains", "a fixed pattern", "at equal reach"
SUFFICE, MATTERS, TRAINING, AGREE = "shifted groups suffice", "the shift matters", "more training", "groups and texts"
RECALLS, NOTHING = "full attention recalls", "what reaches 22 bytes"


@pytest.mark.parametrize(
    ("numbers_of_study", "expected"),
    [
        ({}, {REACHES_FAR: "confirmed", MOVES: "confirmed", SUFFICE: "confirmed", MATTERS: "refuted"}),
        ({}, {REACH: "confirmed", RECALLS: "confirmed", NOTHING: "confirmed", TRAINING: "confirmed"}),
        ({"recalled": 2.0}, {REACHES_FAR: "confirmed", RECALLS: "refuted"}),
        ({"gain": 0.0, "recalled": 2.0}, {REACHES_FAR: "undecided", MOVES: "undecided", RECALLS: "undecided"}),
        ({"gain": 0.0, "pattern": 0.0}, {REACHES_FAR: "refuted", MOVES: "refuted", RECALLS: "confirmed"}),
        ({"shifted": 2.5, "groups": 2.6}, {SUFFICE: "refuted", MATTERS: "confirmed", TRAINING: "refuted"}),
        ({"groups": 2.6, "short": 2.6}, {MATTERS: "confirmed", AGREE: "confirmed", TRAINING: "refuted"}),
        ({"short": 2.42}, {TRAINING: "confirmed", AGREE: "refuted"}),
        ({"interpolated": 2.4}, {SUFFICE: "undecided", MATTERS: "undecided", TRAINING: "undecided"}),
    ],
)
def test_verdicts_on_trained_networks_follow_their_bounds(numbers_of_study, expected):
    found = verdicts_of(**numbers_of_study)
    for beginning, said in expected.items():
        assert [verdict for name, verdict in found.items() if name.startswith(beginning)] == [said], beginning


def test_one_gain_above_rounding_is_an_error_of_the_program():
    check = trained.STUDY.predictions[-1]
    rows = [row for kind in KINDS for row in rows_of_seeds(kind, gain=numbers(0.0, 0.0))]
    assert check.verdict({"networks": pd.DataFrame(rows)}) == "confirmed"
    for row in rows:
        if row["network"] == networks.TOKENS:
            row["gain"][7] = -0.001
    assert check.verdict({"networks": pd.DataFrame(rows)}) == "refuted"


def test_further_rates_are_those_of_the_stated_ones_where_none_is_better():
    kept = frames_of("long_context_trained")["networks"]
    further = {rates: units(kept, networks.PATTERN, rates=rates) for rates in (STATED, FURTHER)}
    assert {*rows_of(kept, network=networks.PATTERN, rates=FURTHER).rate} == {4.0}
    assert further[STATED].mean() < further[FURTHER].mean()
    near(units(kept, networks.WINDOW, rates=FURTHER), units(kept, networks.WINDOW), within=1e-12)
