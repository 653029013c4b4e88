"""A page of `docs/` whose tables a measurement writes, between two marks."""

import re
from pathlib import Path

TABLES = re.compile(r"(<!-- tables: written by .*? -->\n).*?(<!-- end of tables -->)", re.DOTALL)


def write_tables(page: Path, tables: str) -> None:
    """Put tables between a page's marks, in the place of those that are there.

    Args:
        page: the page; it has the marks once.
        tables: what stands between them.
    """
    text = page.read_text(encoding="utf-8")
    (found,) = TABLES.finditer(text)
    begin, end = found.groups()
    written = f"{text[: found.start()]}{begin}\n{tables.strip()}\n\n{end}{text[found.end() :]}"
    page.write_text(written, encoding="utf-8")
