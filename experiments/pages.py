"""Numbers and tables of README.md and `docs/`, filled in from the kept results of the studies.

A page marks a field of a study, in a line or around a block: `<!-- circuits: prompts -->30<!-- end -->`.  Run
`make pages` after a change of how a field is written, or `python -m experiments.pages docs/PAGE.md` for one page;
`tests/experiments/test_pages.py` compares every page with what this writes.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from duat_jax.schemas import schema
from experiments.fields import fields_of
from experiments.findings import write_pages_of_tables, write_records
from experiments.kept_results import ROOT
from experiments.markdown import Fields
from experiments.pictures.run import write_pictures

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCHEMA = ROOT / "docs" / "api" / "schema.json"
"""The JSON schema of results."""

MARK = re.compile(r"(<!-- (?P<study>\w+): (?P<field>[^>]+?) -->)(?P<shown>.*?)(?P<end><!-- end -->)", re.DOTALL)


def filled(text: str, fields: Callable[[str], Fields] = fields_of) -> str:
    """Return a page with every marked field filled in."""

    def replace(mark: re.Match[str]) -> str:
        new = fields(mark["study"])[mark["field"]].strip()
        return mark[1] + (f"\n\n{new}\n\n" if "\n" in mark["shown"] else new) + mark["end"]

    return MARK.sub(replace, text)


def fill_in(page: Path) -> None:
    """Fill in one page."""
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def write_pages() -> None:
    """Fill in every page, draw the pictures of results whose numbers changed, and write the schema of results."""
    fields_of.cache_clear()
    write_pictures()
    write_pages_of_tables()
    write_records()
    for page in PAGES:
        fill_in(page)
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        fill_in(page)
    if not sys.argv[1:]:
        write_pages()
