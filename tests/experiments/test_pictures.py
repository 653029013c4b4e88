"""Every page of results opens with its answer in one sentence and with its picture, both of the kept results."""

import re
from pathlib import Path

import pytest
import yaml
from shown_pages import ROOT

from experiments.pages import MARK
from experiments.pictures.run import digest, every_picture, kept_digest, path

SETTINGS = (ROOT / "properdocs.yml").read_text(encoding="utf-8")
NAVIGATION = yaml.safe_load(SETTINGS[SETTINGS.index("\nnav:") :])["nav"]
FINDINGS = [page for part in NAVIGATION for pages in part.get("Findings", []) for page in pages.values()]
RESULTS = [page for page in FINDINGS if page not in ("findings/index.md", "findings/claims.md")]


@pytest.mark.parametrize("page", RESULTS)
def test_a_page_of_results_opens_with_its_answer_and_its_picture(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    title, answer, picture, caption, *_ = text.split("\n\n")
    assert title.startswith("# ")
    shown = MARK.sub(lambda mark: mark["shown"], answer)
    assert re.fullmatch(r"\*\*[^*]*\.\*\*", shown), "one sentence in bold"
    assert not re.search(r"[.?!] [A-Z]", shown), "one sentence"
    assert MARK.search(answer), "with a number of the kept results"
    assert not re.search(r"\d\.\d", MARK.sub("", answer)), "and none that is typed"
    assert re.fullmatch(rf"!\[[^\]]+\]\({path(Path(page).stem).name}\)", picture)
    assert caption.startswith("*") and caption.endswith("*"), "a sentence on what one sees"


def test_every_page_of_results_has_its_picture():
    assert {*RESULTS} <= {f"findings/{page}.md" for page in every_picture()}


@pytest.mark.parametrize("page", every_picture())
def test_a_picture_shows_the_kept_results(page):
    assert kept_digest(page) == digest(page), "`make pages` draws it again"
