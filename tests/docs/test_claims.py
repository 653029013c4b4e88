"""The page of the papers' claims: each row has a status and what shows it, and verdicts are those of the audit."""

import re
from collections import Counter
from posixpath import normpath

import pytest
from audited import findings
from shown_pages import ROOT

from experiments.pages import MARK

PAGE = (ROOT / "docs" / "findings" / "claims.md").read_text(encoding="utf-8")
HEAD = "| where |"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(HEAD)
]
STATUSES = ("tested", "theorem", "out of scope")
MATHEMATICS = {"explanation/derivations.md", "explanation/blocks.md", "explanation/how-it-works.md"}
"""Pages with what is proved."""
VERDICTS = {(finding.equation, finding.source): finding.verdict for finding in findings()}
_LONGEST_FIRST = "|".join(sorted(set(VERDICTS.values()), key=len, reverse=True))
NAMED = re.compile(rf"((?:`[^`]+`(?: of `00\d`)?(?:, )?)+): ({_LONGEST_FIRST})")
NAME = re.compile(r"`(?:Eq\. )?([^`]+)`(?: of `(00\d)`)?")


def pages(cell):
    """Return the pages that a cell links to."""
    return [normpath(f"findings/{link.partition('#')[0]}") for link in re.findall(r"\]\(([^)]+)\)", cell)]


def findings(cell):
    """Return the findings of the audit that a cell names, with the verdict that it gives."""
    return {
        (equation, version or "000"): verdict
        for names, verdict in NAMED.findall(cell)
        for equation, version in NAME.findall(names)
    }


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}: {row[1][:40]}" for row in ROWS])
def test_a_row_has_a_status_and_what_shows_it(row):
    where, words, status, how = row
    status = status.strip("*")
    assert where and status in STATUSES
    assert re.search("“[^“]+”", words) or words.startswith("the "), "a quotation, or the rest of the row above"
    assert how.startswith("because ") == (status == "out of scope")
    if status == "tested":
        results = [page for page in pages(how) if MARK.search((ROOT / "docs" / page).read_text(encoding="utf-8"))]
        assert results, "a page with kept results"
    if status == "theorem":
        assert set(pages(how)) & MATHEMATICS


def test_every_table_has_the_same_columns():
    assert {len(row) for row in ROWS} == {4}
    tables = len(re.findall(r"^\|---", PAGE, re.MULTILINE))
    assert PAGE.count(HEAD) == tables
    assert tables == len(re.findall("^## ", PAGE, re.MULTILINE))


def test_verdicts_are_those_of_the_audit_and_every_finding_is_on_the_page():
    named = [pair for row in ROWS for pair in findings(row[-1]).items()]
    assert not [pair for pair in named if VERDICTS.get(pair[0]) != pair[1]]
    assert dict(named) == VERDICTS


def test_no_name_of_a_finding_is_without_its_verdict():
    equations = {equation for equation, _ in VERDICTS}
    for row in ROWS:
        assert not [name for name, _ in NAME.findall(NAMED.sub("", row[-1])) if name in equations], row


def test_the_first_sentence_counts_the_rows():
    count = Counter(row[2].strip("*") for row in ROWS)
    tested, theorem, out = (count[status] for status in STATUSES)
    assert (
        f"**Of the papers' claims, in {len(ROWS)} rows, {tested} are tested, {theorem} are decided by mathematics,"
        f" and {out} are out of scope.**"
    ) in PAGE
