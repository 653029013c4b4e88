"""The heat map of a notebook has every number of the table, on the colour of its sign, and no other text's markup."""

import re

import numpy as np

import duat_jax as duat
from duat_jax.display.colours import NEGATIVE, POSITIVE
from duat_jax.display.heat_map import LONGEST, heat_map
from tests.interpret.test_contrast import contrasted


def numbers(html):
    return [float(number) for number in re.findall(r'<td title="([^"]*)"', html)]


def test_a_contrast_in_a_notebook_has_its_flow():
    contrast = contrasted("next token")
    assert np.abs(numbers(contrast._repr_html_()) - contrast.flow.ravel()).max() < 1e-4


def test_an_explanation_in_a_notebook_has_every_layer_and_token():
    model, tokenizer = duat.load(tokenizer=True)
    explanation = duat.explain(model, "a < b <b>", tokenizer=tokenizer)
    html = explanation._repr_html_()
    shown = np.array(numbers(html)).reshape(-1, len(explanation.tokens))
    assert np.abs(shown - [explanation.embedding, *explanation.term_tokens]).max() < 1e-4
    assert "<b>" not in html and "·&lt;" in html


def test_colours_are_signs_and_small_numbers_have_none():
    html = heat_map(["row"], list("abcd"), np.array([[2.0, -1.0, 1e-4, np.nan]]))
    cells = re.findall(r"<td.*?</td>", html)
    assert f"{POSITIVE}8c" in cells[0] and f"{NEGATIVE}46" in cells[1]
    assert "background" not in cells[2] and cells[3] == "<td></td>"


def test_a_long_text_has_no_heat_map():
    assert heat_map(["row"], ["x"] * (LONGEST + 1), np.zeros((1, LONGEST + 1))) == ""
