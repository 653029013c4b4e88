"""What README.md and `docs/` say of the studies is what their kept results say."""

import re

import pytest

from benchmarks.page import MARK, PAGES, RESULTS, filled


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


def test_a_mark_takes_its_field_in_a_line_and_as_a_block():
    fields = {"number": "0.5", "table": "| a |\n|---|\n"}
    text = "It is <!-- some: number -->0.4<!-- end -->.\n\n<!-- some: table -->\n\n<!-- end -->\n"
    expected = "It is <!-- some: number -->0.5<!-- end -->.\n\n<!-- some: table -->\n\n| a |\n|---|\n\n<!-- end -->\n"
    assert filled(text, {"some": fields}.__getitem__) == expected
    with pytest.raises(KeyError, match="letter"):
        filled("<!-- some: letter -->a<!-- end -->", {"some": fields}.__getitem__)


def test_every_study_that_is_shown_has_kept_results():
    studies = {mark["study"] for page in PAGES for mark in MARK.finditer(page.read_text(encoding="utf-8"))}
    assert studies
    assert all((RESULTS / f"{study}.json").exists() for study in studies)
