"""Sets of neurons that an inequality permits, by hand and on a small model."""

from itertools import combinations

import jax
import numpy as np
import pandas as pd
import pytest
from cases import GOLDEN
from helpers import close, near

import duat_jax as duat
from duat_jax.pruning.removal import Terms, measure_removal, without
from experiments.pruning import inequality
from experiments.pruning.draws import Draws

TOKENS = np.array(jax.random.randint(jax.random.key(3), (40 * 9,), 0, 30), np.int32)
PARTS = np.array([[1.0, -1.0, 0.25, 4.0], [2.0, -2.0, 0.25, -4.0]])


@pytest.fixture(scope="module")
def model():
    return duat.load(GOLDEN / "gpt2", dtype="float64")


def test_parts_are_the_sum_of_removed_terms_and_the_run_is_the_pruned_model(model):
    """Against `measure_removal`, which holds every parameter by replaying."""
    ids = TOKENS[:27].reshape(3, 9)
    found = inequality.parts_of(model, ids)
    neurons = [block.neurons for block in model.config.blocks]
    removed = np.zeros(sum(neurons), bool)
    removed[[1, 4, neurons[0] + 2]] = True
    rest = without(model, Terms(neurons={0: [1, 4], 1: [2]}))
    for text, value, parts, again in zip(
        ids, found.value, found.parts, inequality.run_again(model, ids, removed), strict=True
    ):
        by_hand = measure_removal(model, rest, text[:-1])
        whole, held, anew = (
            logits[-1, text[-1]] - logits[-1].mean() for logits in (by_hand.whole, by_hand.held, by_hand.anew)
        )
        close(value, whole, layers=2)
        near(parts[removed].sum(), whole - held, within=1e-12)
        near(again, anew, within=1e-12)


def test_what_each_reading_permits():
    order = np.array([2, 0, 1, 3])
    permit = inequality.permitted
    # Beginnings have the sums .25, 2.25, .25 and 4.25 at the worst text, and sums of sizes of .25, 2.25, 4.25, 8.25.
    assert permit(PARTS, order, 0.5, signed=True).tolist() == [True, True, True, False]
    assert permit(PARTS, order, 0.5, signed=False).tolist() == [False, False, True, False]
    assert permit(PARTS, order, 2.5, signed=False).tolist() == [True, False, True, False]
    assert not permit(PARTS, order, 0.1, signed=True).any()
    assert permit(PARTS, order, 9, signed=False).all()


def test_no_set_of_that_size_has_a_smaller_sum_of_sizes():
    parts = np.random.default_rng(0).standard_normal((1, 7))
    for error in (0.2, 1.0, 2.0):
        count = inequality.permitted(parts, inequality.by_size(parts), error, signed=False).sum()
        larger = [np.abs(parts[0, list(of)]).sum() for of in combinations(range(7), int(count) + 1)]
        assert min(larger) > error


def test_orders():
    assert inequality.by_size(PARTS).tolist() == [2, 0, 1, 3]
    # After the smallest, the one that brings the sums back: 1, of sums −.75 and −1.75, then 0.
    assert inequality.by_sum(PARTS).tolist() == [2, 1, 0, 3]


def test_the_greedy_set_leaves_out_what_breaks_it():
    costs = np.array([0.1, 5.0, 0.2, 0.4])
    found = inequality.greedily(lambda removed: costs[removed].sum(), np.array([0, 1, 2, 3]), 0.5, 1)
    assert found.tolist() == [True, False, True, False]
    by_twos = inequality.greedily(lambda removed: costs[removed].sum(), np.array([0, 2, 1, 3]), 0.5, 2)
    assert by_twos.tolist() == [True, False, True, False]


def test_a_study_on_a_small_model(model):
    draws = Draws(model, TOKENS, TOKENS[-45:].reshape(5, 9), 4)
    held_out = inequality.parts_of(model, draws.held_out)
    drawn = [inequality.of_draw(draws, draw, 4, held_out) for draw in range(2)]
    for rows in drawn:
        assert {row["error"] for row in rows} == {*inequality.ERRORS}
        for error in inequality.ERRORS:
            by_choice = {row["chosen by"]: row for row in rows if row["error"] == error}
            assert by_choice[inequality.SIGNED]["removed"] >= by_choice[inequality.SIZES]["removed"]
            assert by_choice[inequality.AGAIN]["within"] == 1
            for name, found in by_choice.items():
                assert found["measured error"] <= found["bound"]
                if name.startswith(inequality.RANDOM):
                    of = by_choice[name.removeprefix(inequality.RANDOM)]
                    assert found["removed"] == of["removed"]
                if not found["removed"]:
                    assert found["true"] < 1e-9 and found["within elsewhere"] == 1


def choices(within, permitted, kept, few, again):
    """Return made-up choices at every error."""
    rows = {
        inequality.SIGNED: {
            "within": within,
            "within elsewhere": within,
            "removed": permitted,
            "covered": 0.99,
            "bound": 5.0,
            "constant": 3.0,
        },
        inequality.SIZES: {"within elsewhere": kept, "removed": few, "covered": 0.97},
        inequality.AGAIN: {"removed": again, "covered": 0.9},
    }
    return pd.DataFrame(
        {"model": model, "error": error, "chosen by": name, **row}
        for model in inequality.MODELS
        for error in inequality.ERRORS
        for name, row in rows.items()
        for _ in range(2)
    )


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0.96, 0.6, 1.0, 0.1, 0.3), ["confirmed", "refuted"]),
        ((0.3, 0.6, 0.95, 0.1, 0.3), ["refuted", "confirmed"]),
        ((0.3, 0.6, 0.94, 0.1, 0.3), ["refuted", "refuted"]),
        ((0.3, 0.4, 0.95, 0.1, 0.3), ["refuted", "refuted"]),
        ((0.4, 0.6, 0.95, 0.1, 0.3), ["refuted", "refuted"]),
        ((0.3, 0.6, 0.95, 0.2, 0.3), ["refuted", "refuted"]),
    ],
)
def test_both_views_are_decided_as_stated(numbers, said):
    found = [of.verdict({"choices": choices(*numbers)}) for of in inequality.STUDY.predictions]
    assert found == [*said, "mixed", "confirmed"]
