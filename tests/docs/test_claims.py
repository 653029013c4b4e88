"""The list of the papers' claims: each row has a verdict and what decides it, and verdicts agree with the audit."""

import re
from collections import Counter
from posixpath import normpath

import pytest
from audited import findings
from shown_pages import ROOT

from experiments.pages import MARK
from experiments.verdict import Verdict

PAGE = (ROOT / "docs" / "findings" / "tables" / "claims.md").read_text(encoding="utf-8")
SUMMARY = (ROOT / "docs" / "findings" / "claims.md").read_text(encoding="utf-8")
HEAD = "| where | in the papers' words | verdict | by |"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and line != HEAD
]
DECIDED_BY = "measured", "mathematics", "out of scope"
MATHEMATICS = {
    f"explanation/{name}.md" for name in ("derivations", "blocks", "how-it-works", "core")
} | {"reference/blocks.md", "reference/tables/audit.md"}  # fmt: skip
"""Pages with what is proved."""
OF_THE_AUDIT = {(finding.equation, finding.source): finding.verdict for finding in findings()}
_LONGEST_FIRST = "|".join(sorted(set(OF_THE_AUDIT.values()), key=len, reverse=True))
NAMED = re.compile(rf"((?:`[^`]+`(?: of `00\d`)?(?:, )?)+): ({_LONGEST_FIRST})")
NAME = re.compile(r"`(?:Eq\. )?([^`]+)`(?: of `(00\d)`)?")


def basis(cell):
    """Return what decides a row."""
    return re.match("|".join(DECIDED_BY), cell)[0]


def pages(cell):
    """Return the pages that a cell links to."""
    return [normpath(f"findings/tables/{link.partition('#')[0]}") for link in re.findall(r"\]\(([^)]+)\)", cell)]


def named(cell):
    """Return the findings of the audit that a cell names, with the verdict that it gives."""
    return {
        (equation, version or "000"): verdict
        for names, verdict in NAMED.findall(cell)
        for equation, version in NAME.findall(names)
    }


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}: {row[1][:40]}" for row in ROWS])
def test_a_row_has_a_verdict_and_what_decides_it(row):
    where, words, verdict, by = row
    assert where and verdict in set(Verdict)
    assert re.search("“[^“]+”", words) or words.startswith("the "), "a quotation, or the rest of the row above"
    assert (by.startswith("out of scope, because ")) == (basis(by) == "out of scope")
    if basis(by) == "out of scope":
        assert verdict == Verdict.UNDECIDED
    if basis(by) == "measured":
        results = [page for page in pages(by) if MARK.search((ROOT / "docs" / page).read_text(encoding="utf-8"))]
        assert results or any("/tables/" in page for page in pages(by)), "a page with kept results"
    if basis(by) == "mathematics":
        assert set(pages(by)) & MATHEMATICS


def test_every_table_has_the_same_columns_and_the_summary_counts_the_rows():
    assert {len(row) for row in ROWS} == {4}
    tables = len(re.findall(r"^\|---", PAGE, re.MULTILINE))
    assert PAGE.count(HEAD) == tables == len(re.findall("^## ", PAGE, re.MULTILINE))
    counts = Counter((basis(by), verdict) for _, _, verdict, by in ROWS)
    for name in DECIDED_BY:
        each = [counts[name, verdict] for verdict in Verdict]
        order = [counts[name, verdict] for verdict in ("confirmed", "refuted", "mixed", "undecided")]
        assert f"| {name} | {sum(each)} | {' | '.join(map(str, order))} |" in SUMMARY
    assert f"verdict in {len(ROWS)} rows" in SUMMARY


TO_FOUR = {
    "does not hold": Verdict.REFUTED,
    "false as printed, true in a stated reading": Verdict.MIXED,
    "definition with a misprint": Verdict.MIXED,
}
"""The audit's verdicts on formulas that aren't simply right, in the four words."""


def test_verdicts_are_those_of_the_audit_and_every_finding_is_on_the_page():
    pairs = [pair for row in ROWS for pair in named(row[-1]).items()]
    assert not [pair for pair in pairs if OF_THE_AUDIT.get(pair[0]) != pair[1]]
    assert dict(pairs) == OF_THE_AUDIT
    for row in ROWS:
        if basis(row[-1]) == "mathematics" and (of_row := named(row[-1])):
            verdicts = {TO_FOUR.get(verdict, Verdict.CONFIRMED) for verdict in of_row.values()}
            assert row[2] == (verdicts.pop() if len(verdicts) == 1 else Verdict.MIXED), row


def test_no_name_of_a_finding_is_without_its_verdict():
    equations = {equation for equation, _ in OF_THE_AUDIT}
    for row in ROWS:
        assert not [name for name, _ in NAME.findall(NAMED.sub("", row[-1])) if name in equations], row
