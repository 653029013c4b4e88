"""The numbers on demonstrations, reach and copying: parts add up, and verdicts follow their rules."""

import numpy as np
import pandas as pd
import pytest
from helpers import close, near

from duat_jax.in_context.reach import Reach
from duat_jax.inputs.few_shot_tasks import PAIRS
from experiments.estimate import Estimate, Method, estimate
from experiments.in_context import copying, reach, run
from experiments.in_context.models import EMBEDDED, SMOLLM2
from experiments.in_context.reach import equal_shares, later_half, without_first
from experiments.in_context.run import SUMS, count_shared, gains, sums_of


def replies(draws):
    """Return the rows of replies: `log p` in view and hidden of each kind of demonstrations, by draw."""
    return pd.DataFrame(
        [
            {"task": "antonyms", "count": 4, "draw": draw, "demonstrations": kind, "where": where}
            | {"any answer": value / 4, "which of them": 3 * value / 4, "first": value > -1}
            for draw, kinds in enumerate(draws)
            for kind, pair in kinds.items()
            for where, value in zip(("in view", "hidden"), pair, strict=True)
        ]
    )


DRAWS = [
    {"right": (-1, -6), "exchanged": (-2, -6), "redrawn": (-2.5, -7), "capitals": (-4, -5)},
    {"right": (0, -8), "exchanged": (-3, -8), "redrawn": (-4, -8), "capitals": (-4, -7)},
]


def test_the_mapping_is_the_difference_of_what_right_and_exchanged_demonstrations_add():
    found = gains(replies(DRAWS))
    # Added: right 5 and 8, exchanged 4 and 5, redrawn 4.5 and 4, capitals 1 and 3.
    assert found["added in all"].tolist() == [5, 8] and found["exchanged ones add"].tolist() == [4, 5]
    assert found["mapping: right − exchanged"].tolist() == [1, 3]
    assert found["right − redrawn"].tolist() == [0.5, 4]
    assert found["exchanged − redrawn"].tolist() == [-0.5, 1] and found["capitals"].tolist() == [1, 3]
    parts = [gains(replies(DRAWS), (of,))["added in all"].tolist() for of in ("any answer", "which of them")]
    assert parts == [[1.25, 2], [3.75, 6]]
    near(run.share_of("exchanged", gains(replies(DRAWS))).value, 9 / 13, within=1e-9)


FEW, MANY, EITHER = (-5, -5.1), (-2, -1.9), (-1, -5.9)
"""The answer's log-probability after exchanged demonstrations in two draws."""


@pytest.mark.parametrize(
    ("exchanged", "expected"),
    [
        ((MANY, MANY, MANY), "refuted"),
        ((FEW, FEW, FEW), "confirmed"),
        ((FEW, MANY, FEW), "refuted"),
        ((FEW, FEW, EITHER), "undecided"),
    ],
)
def test_the_gain_takes_right_answers_if_exchanged_ones_add_less_than_half_in_every_task(exchanged, expected):
    by_task = [
        replies([{"right": (-1, -6), "exchanged": (of, -6), "redrawn": (-2, -6)} for of in draws]).assign(task=task)
        for task, draws in zip(PAIRS, exchanged, strict=True)
    ]
    assert run.STUDY.predictions[0].verdict({"replies": pd.concat(by_task)}) == expected


def test_a_hidden_reply_counts_once():
    found = run._kinds(replies(DRAWS))
    assert found.kind.value_counts().to_dict() == dict.fromkeys(
        ("right", "exchanged", "redrawn", "capitals", "hidden"), 2
    )


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
        close(found[name], number)
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
    rows = pd.DataFrame({"beyond 16": [0.4, 0.5], "first": [0.2, 0.25]})
    # 0.2 of 0.8 and 0.25 of 0.75; together 0.45 of 1.55.
    near(without_first(rows, 16).value, 0.45 / 1.55, within=1e-12)


def test_shared_first_tokens_are_counted_over_draws():
    counts = count_shared([5, 5, 6, 7], [(5, [6, 5]), (6, [7, 5]), (5, [6, 7])])
    assert counts == {"pairs": 4, "first tokens": 3, "shared": 2, "demonstrated": 1}


def test_windows_are_compared_text_by_text_with_the_whole_text():
    losses = {(16, "nothing else"): [5.0, 7.0], (16, "and the first token"): [4.0, 5.0], (128, "nothing else"): [3, 4]}
    windows = pd.DataFrame(
        [
            {"model": SMOLLM2, "window": size, "kept": kept, "text": text, "loss": loss}
            for (size, kept), of in losses.items()
            for text, loss in enumerate(of)
        ]
    )
    assert reach._rise(windows).rise.tolist() == [2, 3, 1, 1, 0, 0]


def certain(value):
    return Estimate(value, value, value, 1, Method.NONE)


@pytest.mark.parametrize(
    ("read", "dense", "expected"),
    [((60, 70), 1.0, "confirmed"), ((4, 8), 1.0, "refuted"), ((60, 70), 0.3, "refuted"), ((4, 70), 1.0, "refuted")],
)
def test_a_matrix_is_dense_by_its_entries_and_wide_by_what_is_read(read, dense, expected):
    assert reach.dense_and_wide(*map(certain, (*read, 96.5, dense))) == expected


class Account:
    """A ledger whose parts add up; some is moved from attention to the part to that to other tokens."""

    def __init__(self, moved=0.0):
        self.moved = moved

    def as_dict(self):
        """Return the stored content of such a ledger."""
        layers = [[0.1, 0.2 - self.moved, 0.3 + self.moved, 0.0, 0.4], [0.0, 0.0, 0.0, 0.5, 0.0]]
        form = {"inputs": 0.1, "inner_inputs": [0.15, 0.05], "path": [0.3, 0.4], "bias": 0.0}
        form |= {"outer": [[0.1, 0.1], [0.0, 0.1]], "inner": [[0.0, 0.1]], "inner_bias": [0.2, 0.1]}
        form |= {"completeness": {"error": -3e-6}}
        return {"difference": 1.7, "inputs": [0.5, -0.3], "layers": layers, "form": form, "reads": [0.7, 1.0]} | {
            "completeness": {"error": 2e-6}
        }


def test_sums_of_a_ledger_add_up_to_its_difference():
    found = sums_of(Account())
    near(found["nothing held: inputs"], 1.7, within=1e-12)
    near([found["sizes of moved inputs"], found["moved inputs"]], [0.8, 0.2], within=1e-12)
    near([found[of] for of in SUMS], [0.1, 0.5, 0.5, 0.4], within=1e-12)
    near(found["moved inputs"] + sum(found[of] for of in SUMS), found["difference"], within=1e-12)
    near(sum(found[of] for of in run.PARAMETERS), found["difference"], within=1e-12)
    near(found["moved by layer"], [1.0, 0.5], within=1e-12)
    assert found["error"] == 3e-6


def test_parts_of_attention_are_shown_in_a_sum_that_a_constant_in_all_values_leaves():
    near([sums_of(Account(2.5))[of] for of in SUMS], [sums_of(Account())[of] for of in SUMS], within=1e-12)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [((1.0, 1.1), "confirmed"), ((0.2, 1.0), "mixed"), ((0.2, 0.3), "refuted"), ((1.2, 1.0), "undecided")],
)
def test_heads_copy_if_as_much_is_lost_as_their_part_says(lost, expected):
    rows = [
        {"model": name, "sequence": i, "heads": [1, 2], "their parts": [2.0, 3.0]}
        | {"lost without them": [2.0 * of + 0.001 * i, 9.0]}
        for name, of in zip((SMOLLM2, EMBEDDED), lost, strict=True)
        for i in range(3)
    ]
    frames = {"sequences": pd.DataFrame(rows)}
    near(copying.lost(SMOLLM2, frames).value, lost[0], within=1e-2)
    assert copying.STUDY.predictions[0].verdict(frames) == expected
    assert copying.as_much(estimate([0.5, 1.5])) == "undecided"
