"""The heat map of a notebook has every number of the table, on the colour of its sign, and no other text's markup."""

import re

import numpy as np

import duat_jax as duat
from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.heat_map import heat_map
from duat_jax.display.shown_tokens import LARGEST, LONGEST
from tests.helpers import near
from tests.interpret.test_contrast import contrasted


def numbers(html):
    return [float(number) for number in re.findall(r'<td title="([^"]*)"', html)]


def test_a_contrast_in_a_notebook_has_its_flow():
    contrast = contrasted("next token")
    assert np.abs(numbers(contrast._repr_html_()) - contrast.flow.ravel()).max() < 1e-4


def test_an_explanation_in_a_notebook_has_every_layer_and_token():
    model = duat.load()
    tokenizer = model.tokenizer
    explanation = duat.explain(model, "a < b <b>", tokenizer=tokenizer)
    html = explanation._repr_html_()
    shown = np.array(numbers(html)).reshape(-1, len(explanation.tokens))
    assert np.abs(shown - [explanation.embedding, *explanation.term_tokens]).max() < 1e-4
    assert "<b>" not in html and "·&lt;" in html


def test_colours_are_signs_and_small_numbers_have_none():
    html = heat_map(["row"], list("abcd"), np.array([[2.0, -1.0, 1e-4, 0.0]]))
    cells = re.findall(r"<td.*?</td>", html)
    assert f"{POSITIVE}8c" in cells[0] and f"{NEGATIVE}46" in cells[1]
    assert "background" not in cells[2] and "background" not in cells[3]


def test_of_a_long_text_the_largest_tokens_stand_alone_and_the_others_sum():
    table = np.random.default_rng(0).standard_normal((2, LONGEST + 1)).round(3)
    shown = np.array(numbers(heat_map(["a", "b"], ["x"] * (LONGEST + 1), table))).reshape(2, -1)
    assert shown.shape[1] == LARGEST + 1
    near(shown.sum(1), table.sum(1), within=1e-3)
