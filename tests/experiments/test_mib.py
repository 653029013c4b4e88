"""The tasks of MIB that are rebuilt by their definitions."""

import re
from random import Random
from types import SimpleNamespace

import jax.numpy as jnp
import pandas as pd
import pytest

from experiments.circuits import mib
from experiments.table import render


@pytest.mark.parametrize("task", ["addition", "subtraction"])
def test_answers_are_the_first_digits_of_the_results(task):
    draw = Random(1)
    for _ in range(50):
        case = mib.TASKS[task](draw)
        for text, answer in ((case.clean, case.right), (case.corrupted, case.wrong)):
            one, other = map(int, re.findall(r"\d+", text))
            assert str(one + other if task == "addition" else one - other)[0] == answer
        assert case.right != case.wrong


@pytest.mark.parametrize("task", ["multiple choice, letters flipped", "multiple choice, places exchanged"])
def test_the_answer_is_the_letter_before_the_colour_that_the_text_names(task):
    draw = Random(1)
    for _ in range(50):
        case = mib.TASKS[task](draw)
        for text, answer in ((case.clean, case.right), (case.corrupted, case.wrong)):
            colour = re.search(r"is (\w+)\. What", text)[1]
            assert f"\n{answer.strip()}. {colour}\n" in text
        assert (case.wrong.strip() in "ABCD") == ("places" in task)


def test_a_model_is_asked_after_both_texts(monkeypatch):
    """A model that repeats the first character answers the first case, and says the first answer after both texts."""
    characters = SimpleNamespace(encode=lambda text: SimpleNamespace(ids=list(text.encode())))
    monkeypatch.setattr(mib, "_last", lambda model, ids: jnp.zeros(128).at[ids[0]].set(1))
    for corrupted, both in (("b", True), ("a", False)):
        case = mib.Case("a text", f"{corrupted} text", "a", "b")
        assert mib.answers(None, characters, case) == {"both": both, "said": True}
    prompts = pd.DataFrame([{"task": "addition", "both": True, "said": False}] * 4)
    (row,) = render(mib.STUDY.tables["Answered"], {"prompts": prompts})[2:3]
    assert row == "| addition | 4 | 1.00 [0.40, 1.00] | 0.00 [0.00, 0.60] |"
