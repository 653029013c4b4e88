"""What README.md and `docs/` say of the studies is what their kept results say."""

import re

import pytest

from experiments.estimate import Estimate, Method, estimate
from experiments.markdown import cells
from experiments.pages import MARK, PAGES, filled


@pytest.mark.parametrize(
    "page", [page for page in PAGES if MARK.search(page.read_text("utf-8"))], ids=lambda page: page.name
)
def test_a_page_shows_the_kept_results(page):
    text = page.read_text(encoding="utf-8")
    assert filled(text) == text, "`make pages` fills the page in from the kept results"


def test_every_mark_of_a_page_is_read():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(re.findall("<!-- end -->", text)) == len(MARK.findall(text)), page
        # A comment at the beginning of a line ends the paragraph or the list there.
        assert not re.search(r"\S\n *<!-- \w+: [^>]+ ?-->[^\n]", text), page


def test_a_mark_takes_its_field_in_a_line_and_as_a_block():
    fields = {"number": "0.5", "table": "| a |\n|---|\n"}
    text = "It is <!-- some: number -->0.4<!-- end -->.\n\n<!-- some: table -->\n\n<!-- end -->\n"
    expected = "It is <!-- some: number -->0.5<!-- end -->.\n\n<!-- some: table -->\n\n| a |\n|---|\n\n<!-- end -->\n"
    assert filled(text, {"some": fields}.__getitem__) == expected
    with pytest.raises(KeyError, match="letter"):
        filled("<!-- some: letter -->a<!-- end -->", {"some": fields}.__getitem__)


def test_a_cell_is_called_by_its_heading_row_and_column():
    text = """### Errors

| network | layers | error |
|---|---|---|
| perceptron | 1 | 0.10 [0.08, 0.12] |
| perceptron | 2 | 0.05 |

### `P` moved

| network | *share* |
|---|---|
| perceptron | 2 % |
"""
    found = cells(text)
    assert found["Errors / perceptron, 1 / error"] == "0.10 [0.08, 0.12]"
    assert found["Errors / perceptron, 1 / error / value"] == "0.10"
    assert found["Errors / perceptron, 2 / error / value"] == "0.05"
    assert found["P moved / perceptron / share"] == "2 %"


def test_an_interval_is_written_with_its_number():
    def written(*numbers, digits, sign=""):
        return Estimate(*numbers, 9, Method.STUDENT).written(digits, sign)

    assert written(0.5, 0.4, 0.625, digits=2, sign="+") == "+0.50 [+0.40, +0.62]"
    assert written(-0.0001, -0.2, 0.2, digits=1) == "0.0 [-0.2, 0.2]"
    assert estimate([1.0, 1.0, 1.0]).written() == "1.000", "an interval without a width says nothing"


def test_what_never_holds_may_still_hold_sometimes():
    """Of none in eight the upper limit `p` has `(1 − p)^8 = 2.5 %`."""
    limit = 1 - 0.025 ** (1 / 8)
    assert estimate([False] * 8).written() == f"0.000 [0.000, {limit:.3f}]"
    assert estimate([True] * 8).scaled(100).written(1) == f"100.0 [{100 - 100 * limit:.1f}, 100.0]"
