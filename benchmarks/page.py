"""The numbers and tables of README.md and `docs/`, filled in from the kept results of the studies.

A page marks a field of a study, in a line or around a block: `<!-- circuits: prompts -->30<!-- end -->`.  Run
`make pages` after a change of how a field is written; `tests/test_pages.py` compares every page with what this writes.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARK = re.compile(r"(<!-- (?P<study>\w+): (?P<field>[^>]+?) -->)(?P<shown>.*?)(?P<end><!-- end -->)", re.DOTALL)

Fields = dict[str, str]
"""What a study says, by the name of the field: a number with its digits, or a block of Markdown."""


@cache
def fields_of(study: str) -> Fields:
    """Return the fields of a study, made from its kept results.

    Args:
        study: a module of `benchmarks` with a function `fields` of the results in `benchmarks/results/<study>.json`.
    """
    results = json.loads((RESULTS / f"{study}.json").read_text(encoding="utf-8"))
    return import_module(f"benchmarks.{study}").fields(results)


def filled(text: str, fields: Callable[[str], Fields] = fields_of) -> str:
    """Return a page with every marked field as its study writes it.

    Args:
        text: the page.
        fields: the fields of a study by its name.

    Raises:
        KeyError: if a study has no such field.
    """

    def replace(mark: re.Match[str]) -> str:
        new = fields(mark["study"])[mark["field"]].strip()
        return mark[1] + (f"\n\n{new}\n\n" if "\n" in mark["shown"] else new) + mark["end"]

    return MARK.sub(replace, text)


def write_pages() -> None:
    """Fill in every page."""
    fields_of.cache_clear()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
