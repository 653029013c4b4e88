"""Numbers and tables of README.md and `docs/`, filled in from the stored results of the studies.

A page marks a field of a study, in a line or around a block: `<!-- circuits: prompts -->30<!-- end -->`.  Run
`make pages` after a change of how a field is written; `tests/experiments/test_pages.py` compares every page with what
this writes.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from duat_jax.evaluation.statistics import Estimate, bootstrap
from duat_jax.records import schema

ROOT = Path(__file__).parent.parent
FOLDERS = ("experiments", "benchmarks")
"""The folders of studies and their kept results."""

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCHEMA = ROOT / "docs" / "api" / "schema.json"
"""The JSON schema of results."""

MARK = re.compile(r"(<!-- (?P<study>\w+): (?P<field>[^>]+?) -->)(?P<shown>.*?)(?P<end><!-- end -->)", re.DOTALL)

Fields = dict[str, str]
"""The fields of a study, by name: a number with its digits, or a block of Markdown."""


def interval(numbers: Estimate | Sequence[float] | np.ndarray, digits: int = 3, sign: str = "") -> str:
    """Format an estimate with its 95 % confidence interval, as on every page: `0.50 [0.41, 0.62]`.

    Args:
        numbers: the estimate; or a number of each unit (seed, text, draw), of which the mean is taken, by bootstrap.
        digits: after the decimal point.
        sign: `"+"` for a difference.
    """
    return (numbers if isinstance(numbers, Estimate) else bootstrap(np.asarray(numbers, float))).written(digits, sign)


def proportion(hits: Sequence[bool] | np.ndarray) -> Estimate:
    """Return the share of units for which something holds, with Clopper and Pearson's interval.

    Args:
        hits: whether it holds, for every unit.
    """
    found = binomtest(int(np.sum(hits)), len(hits))
    return Estimate(float(found.statistic), *map(float, found.proportion_ci(method="exact")))


def counted(hits: Sequence[bool] | np.ndarray) -> str:
    """Format how often something holds, in per cent, with an interval, which 0 and 100 % have, too.

    Args:
        hits: whether it holds, for every unit.

    Example:
        >>> counted([True, False, False, False])
        '25.0 [0.6, 80.6] %'
    """
    return f"{Estimate(*(100 * number for number in proportion(hits))).written(1)} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown.

    Args:
        head: the title of each column.
        rows: the cells of each row.

    Example:
        >>> table(["method", "cost"], [["secant", "4.0"]])
        ['| method | cost |', '|---|---|', '| secant | 4.0 |']
    """
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def tables_of(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield every table of a text with its heading, as rows of cells, the head first.

    Args:
        text: headings and tables in Markdown.
    """
    title, rows = "", list[list[str]]()
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield title, [rows[0], *rows[2:]]
            rows = []
        if line.startswith("#"):
            title = line.lstrip("# ")


def cells(text: str) -> Fields:
    """Return every cell of a text's tables, by the name `heading / row / column`.

    A row is called by its first cell, or by as many of its first cells as tell it from the table's other rows.  Of a
    number with an interval, `heading / row / column / value` is the number alone.

    Args:
        text: headings and tables in Markdown.
    """
    fields: Fields = {}
    for title, (head, *rows) in tables_of(text):
        named = next(n for n in range(1, len(head) + 1) if len({tuple(row[:n]) for row in rows}) == len(rows))
        for row in rows:
            name = ", ".join(filter(None, row[:named]))
            for column, cell in zip(head[named:], row[named:], strict=True):
                field = f"{title} / {name} / {column}".translate(str.maketrans("", "", "*`"))
                fields |= {field: cell, f"{field} / value": cell.partition(" [")[0]}
    return fields


def kept(study: str) -> dict[str, Any]:
    """Return the stored results of a study, or nothing for a study that reads those of others.

    Args:
        study: the name of a file in `experiments/results` or `benchmarks/results`.
    """
    for folder in FOLDERS:
        path = ROOT / folder / "results" / f"{study}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    return {}


@cache
def fields_of(study: str) -> Fields:
    """Return the fields of a study, from its stored results.

    Args:
        study: a folder or module of `experiments`, a folder's module as `folder_module`, or a module of `benchmarks`,
            with a function `fields` of these results.
    """
    folder, _, part = study.rpartition("_")
    modules = {
        f"experiments.{study}.run": ROOT / "experiments" / study / "run.py",
        f"experiments.{study}": ROOT / "experiments" / f"{study}.py",
        f"experiments.{folder}.{part}": ROOT / "experiments" / folder / f"{part}.py",
        f"benchmarks.{study}": ROOT / "benchmarks" / f"{study}.py",
    }
    module = import_module(next(name for name, file in modules.items() if file.exists()))
    return module.fields(kept(study))


def filled(text: str, fields: Callable[[str], Fields] = fields_of) -> str:
    """Return a page with every marked field filled in.

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
    """Fill in every page, draw the pictures of results whose numbers changed, and write the schema of results."""
    from experiments.pictures.run import write_pictures

    fields_of.cache_clear()
    write_pictures()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_pages()
