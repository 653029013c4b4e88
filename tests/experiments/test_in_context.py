"""The tables on in-context learning: their parts add up, and they are made of whatever was measured."""

import numpy as np
import pytest
from helpers import close, near

from duat_jax.evaluation.statistics import bootstrap
from duat_jax.in_context.reach import Reach
from experiments.in_context.cells import MODELS, TASKS, coverage, intervals, ratio
from experiments.in_context.gains import count_shared
from experiments.in_context.ledgers import columns
from experiments.in_context.reading import equal_shares, later_half, without_first
from experiments.in_context.report import page

SIZES = {"texts": 2, "tokens": 128}


def replies(numbers):
    """Return one draw's pieces: `log p` in view and hidden of each kind of demonstrations."""
    return {
        control: {
            where: {"of_task": value / 4, "among_task": 3 * value / 4, "right": value > -1}
            for where, value in zip(("in view", "hidden"), pair, strict=True)
        }
        for control, pair in numbers.items()
    }


def rows_of(text, first):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(f"| {first} ")]


def numbers_of(cells):
    return [float(cell.split(" ")[0]) for cell in cells if cell]


def test_the_mapping_is_the_difference_of_what_right_and_exchanged_demonstrations_add():
    draws = [
        {"None": (-1, -6), "exchanged": (-2, -6), "redrawn": (-2.5, -7), "capitals": (-4, -5), "uppercase": (-5, -6)},
        {"None": (0, -8), "exchanged": (-3, -8), "redrawn": (-4, -8), "capitals": (-4, -7), "uppercase": (-5, -6)},
    ]
    pieces = {f"replies, antonyms, 4, {i}": replies(numbers) for i, numbers in enumerate(draws)}
    split, finer, *others, accuracy = rows_of(page({"sizes": SIZES, "pieces": pieces}), "antonyms")
    # Added: right 5 and 8, exchanged 4 and 5, redrawn 4.5 and 4, capitals 1 and 3, uppercase 1 and 1.
    assert numbers_of(split[3:]) == [6.5, 4.5, 2.0, 2.25, 0.25]
    assert split[5] == bootstrap(np.array([1.0, 3.0])).written(2, "+") == "+2.00 [+1.00, +3.00]"
    assert split[7].startswith("+0.25 [-0.50, +1.00]"), "draw by draw, -0.5 and 1"
    near(numbers_of(finer[3:]), [1.125, 0.5, 3.375, 1.5, 25.0], within=0.006)
    assert [row[:2] for row in others] == [["antonyms", "capitals"], ["antonyms", "uppercase"]]
    assert [numbers_of(row[2:]) for row in others] == [[2.0, 0.5, 1.5], [1.0, 0.25, 0.75]]
    assert accuracy[3:] == ["0 of 2", "0 of 4", "0 of 2", "0 of 2", "1 of 2"]


@pytest.mark.parametrize(
    ("masked", "expected"),
    [
        # Positions 2 and 3 of four read three and four tokens: 1/3 and 1/4 each.
        (True, {"density": 10 / 16, "tokens": 7 / 2, "distance": 5 / 4, "first": 7 / 24, "beyond 2": 5 / 12}),
        (False, {"density": 1, "tokens": 4, "distance": 5 / 4, "first": 1 / 4, "beyond 2": 3 / 8}),
    ],
)
def test_equal_shares_are_what_a_position_that_reads_all_tokens_alike_has(masked, expected):
    found = equal_shares(4, masked)
    for name, number in expected.items():
        close(found[name]["texts"], [number])
    assert found["itself"] == found["first"] == found["first, norms not squared"] == found["first, along the sum"]


@pytest.mark.parametrize("masked", [True, False])
def test_over_the_later_half_the_first_token_is_in_every_share_from_further_away(masked):
    norms = np.random.default_rng(0).uniform(0.1, 1, (3, 8, 8)) * (np.tri(8) if masked else 1)
    found = later_half(Reach(np.ones(3), norms, norms))
    shares = norms**2 / (norms**2).sum(-1, keepdims=True)
    for kernel in (2, 4):
        rest = [
            [sum(layer[q, k] for k in range(1, 8) if abs(q - k) >= kernel) for q in range(4, 8)] for layer in shares
        ]
        close(found[f"beyond {kernel}"] - found["first"], np.mean(rest, 1))


def test_the_share_without_the_first_token_is_of_what_remains():
    piece = {"beyond 16": {"texts": [0.4, 0.5]}, "first": {"texts": [0.2, 0.25]}}
    # 0.2 of 0.8 and 0.25 of 0.75; together 0.45 of 1.55.
    assert without_first(piece, 16) == "29.0 [25.0, 33.3] %"
    assert ratio([1, 3], [4, 4]) == "50.0 [25.0, 75.0] %" and ratio([1], [4]) == "25.0 %"


def test_shared_first_tokens_are_counted_over_draws():
    counts = count_shared([5, 5, 6, 7], [(5, [6, 5]), (6, [7, 5]), (5, [6, 7])])
    assert counts == {"pairs": 4, "first tokens": 3, "shared": 2, "demonstrated": 1}


def test_an_interval_of_few_units_covers_less():
    # Student's t of two units is Cauchy's distribution, whose quantiles are tangents.
    near(coverage(2), 2 / np.pi * np.arctan(1.959964 * np.sqrt(1 / 2)), within=1e-6)
    near([coverage(8), coverage(10**6)], [0.89, 0.95], within=1e-3)
    assert intervals("Of text [1.0, 2.0].\n| +1.0 [+0.5, +1.5] | 2.0 (+1.0 [-1.0, +3.0]) | a [b] |") == 2


def test_windows_are_compared_text_by_text_with_the_whole_text():
    losses = {"16, nothing else": [5.0, 7.0], "16, and the first token": [4.0, 5.0], "128, nothing else": [3.0, 4.0]}
    pieces = {f"windowed, {MODELS[1]}, {name}": value for name, value in losses.items()}
    cut, kept = rows_of(page({"sizes": SIZES, "pieces": pieces}), MODELS[1])
    assert cut[5] == "6.00 (+2.50 [+2.00, +3.00])" and kept[5] == "4.50 (+1.00)" and cut[8] == "3.50"


def ledger(i, moved=0.0):
    """Return an account whose parts add up; some is moved from attention to the part to that to other tokens."""
    layers = [[0.1, 0.2 * i - moved, 0.3 + moved, 0.0, 0.4], [0.0, 0.0, 0.0, 0.5, 0.0]]
    form = {"inputs": 0.1, "inner_inputs": 0.2, "path": [0.3, 0.4], "bias": 0.0, "outer": [0.1, 0.2]}
    form |= {"inner": [0.0, 0.1], "inner_bias": 0.1 + 0.2 * i, "completeness": {"error": 1e-6}}
    difference = 1.5 + 0.2 * i
    return {"difference": difference, "inputs": [0.5, -0.3], "layers": layers, "form": form} | {
        "completeness": {"error": 2e-6},
        "reads": [difference - 1, 1.0],
    }


def test_columns_of_a_ledger_add_up_to_its_difference():
    pieces = {f"ledger, {TASKS[1]}, 4, {i}, mapping": ledger(i) for i in range(3)}
    text = page({"sizes": SIZES, "pieces": pieces})
    moved, form = (numbers_of(row[4:]) for row in rows_of(text, "mapping: right − exchanged"))
    difference, nothing_held, sizes, *parts = moved
    assert difference == nothing_held == 1.7 and sizes == 0.8
    assert parts == [0.2, 0.1, 0.5, 0.5, 0.4]
    assert sum(parts) == pytest.approx(difference) and sum(form) == pytest.approx(difference)
    assert "miss the differences by at most 2e-06" in text


def test_parts_of_attention_are_shown_in_a_sum_that_a_constant_in_all_values_leaves():
    assert columns([ledger(i) for i in range(3)]) == columns([ledger(i, moved=2.5) for i in range(3)])


def test_a_page_of_nothing_measured_has_no_tables():
    assert "| ---" not in page({"sizes": SIZES, "pieces": {}})
