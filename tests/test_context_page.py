"""The tables on in-context learning: their parts add up, and they are made of whatever was measured."""

import numpy as np
import pytest

from benchmarks.context_page import MODELS, TASKS, page
from duat_jax.analysis.statistics import bootstrap

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


def test_format_and_mapping_are_differences_of_what_each_control_adds():
    draws = [
        {"None": (-1, -6), "exchanged": (-2, -6), "redrawn": (-2.5, -7), "capitals": (-4, -5), "uppercase": (-5, -6)},
        {"None": (0, -8), "exchanged": (-3, -8), "redrawn": (-4, -8), "capitals": (-4, -7), "uppercase": (-5, -6)},
    ]
    pieces = {f"replies, antonyms, 4, {i}": replies(numbers) for i, numbers in enumerate(draws)}
    text = page({"sizes": SIZES, "pieces": pieces})
    split, finer, accuracy = rows_of(text, "antonyms")
    means = [float(cell.split(" ")[0]) for cell in split[3:]]
    # Added: right 5 and 8, exchanged 4 and 5, redrawn 4.5 and 4, another task's 1 and 2.
    assert means == [6.5, 4.5, 2.0, 2.25, 1.5]
    assert np.isclose(sum(means[1:3]), means[0])
    halves = [float(cell.split(" ")[0]) for cell in finer[3:]]
    np.testing.assert_allclose(halves, [1.125, 0.5, 3.375, 1.5], rtol=0, atol=0.006)
    assert accuracy[3:] == ["0 %", "0 %", "0 %", "0 %", "50 %"]
    assert split[5] == bootstrap(np.array([1.0, 3.0])).written(2, "+") == "+2.00 [+1.00, +3.00]"


def test_windows_are_compared_text_by_text_with_the_whole_text():
    losses = {"16, nothing else": [5.0, 7.0], "16, and the first token": [4.0, 5.0], "128, nothing else": [3.0, 4.0]}
    pieces = {f"windowed, {MODELS[1]}, {name}": value for name, value in losses.items()}
    cut, kept = rows_of(page({"sizes": SIZES, "pieces": pieces}), MODELS[1])
    assert cut[5] == "6.00 (+2.50 [+2.00, +3.00])" and kept[5] == "4.50 (+1.00)" and cut[8] == "3.50"


def test_columns_of_a_ledger_add_up_to_its_difference():
    def ledger(i):
        layers = [[0.1, 0.2 * i, 0.3, 0.0, 0.4], [0.0, 0.0, 0.0, 0.5, 0.0]]
        form = {"inputs": 0.1, "inner_inputs": 0.2, "path": [0.3, 0.4], "bias": 0.0, "outer": [0.1, 0.2]}
        form |= {"inner": [0.0, 0.1], "inner_bias": 0.1 + 0.2 * i, "completeness": {"error": 1e-6}}
        difference = 1.5 + 0.2 * i
        return {"difference": difference, "inputs": [0.2, 0.0], "layers": layers, "form": form} | {
            "completeness": {"error": 2e-6}
        }

    pieces = {f"ledger, {TASKS[1]}, 4, {i}, mapping": ledger(i) for i in range(3)}
    text = page({"sizes": SIZES, "pieces": pieces})
    for row in rows_of(text, "mapping: right − exchanged"):
        numbers = [float(cell.split(" ")[0]) for cell in row[4:]]
        difference, parts = (numbers[0], numbers[1:]) if len(numbers) == 7 else (1.7, numbers)
        assert sum(parts) == pytest.approx(difference, abs=0.02)
    assert "miss the differences by at most 2e-06" in text


def test_a_page_of_nothing_measured_has_no_tables():
    assert "| ---" not in page({"sizes": SIZES, "pieces": {}})
