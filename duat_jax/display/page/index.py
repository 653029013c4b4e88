"""The page that lists many results, each with a link to its own page."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from duat_jax.display.page.document import html_of, style_of_page

INDEX = """<main>
<h1>{title}</h1>
<p class="faint">{about}</p>
<p>{counts}. {verdicts}</p>
<table class="index">
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</main>"""

STYLE = """
.index { border-collapse: collapse; width: 100%; font-size: 13px; }
.index :is(th, td) { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0;
  border-bottom: 1px solid var(--line); white-space: pre-wrap; }
.index td:first-child { white-space: nowrap; }
.index td:is(:nth-child(2), :nth-child(3)) { overflow-wrap: anywhere; }
.index th { font-weight: 400; color: var(--faint); }
.index a { color: var(--accent); }
@media (max-width: 600px) {
  .index, .index :is(tbody, tr, td) { display: block; }
  .index thead { display: none; }
  .index tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .index td, .index td:first-child { border: 0; padding: .1rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
  .index td:empty { display: none; }
  .index td[data-name]::before { content: attr(data-name) " "; color: var(--faint); }
}
"""
"""On a phone every result is a block of lines, each with the name of its column."""

VERDICTS = (
    "An answer holds if its parts sum to its number within rounding, fails if they don't, and is inconclusive if"
    " rounding hides it; by a method whose parts needn't sum a prompt is answered, and with a mistake it is refused."
    " Parts have both signs, so one may exceed the whole."
)
"""The meaning of the verdicts."""

COLUMNS = "id", "text", "headline", "value", "difference", "verdict"
"""The fields of a row that are shown."""


def index_document(title: str, about: str, rows: Sequence[Mapping[str, Any]], links: Sequence[str]) -> str:
    """Return a page that lists rows; a row without an answer has its error, and no link."""
    body = INDEX.format(
        title=escape(title),
        about=escape(about),
        counts=counts_of(rows),
        verdicts=VERDICTS,
        head="".join(f"<th>{name}</th>" for name in COLUMNS),
        body="\n".join(f"<tr>{_cells(row, link)}</tr>" for row, link in zip(rows, links, strict=True)),
    )
    return html_of(f"{title} – duat", body, style_of_page() + STYLE)


def counts_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return how many rows have each verdict.

    Example:
        >>> counts_of([{"verdict": "holds"}, {"verdict": "refused"}, {"verdict": "holds"}])
        'holds: 2, refused: 1'
    """
    return ", ".join(f"{verdict}: {count}" for verdict, count in Counter(row["verdict"] for row in rows).items())


def _cells(row: Mapping[str, Any], link: str) -> str:
    """Return the cells of a row, its id as a link."""
    values = [row[name] for name in COLUMNS]
    values[COLUMNS.index("headline")] = row["error"] or row["headline"] or row["explained"]
    written = [escape(f"{each:z.4f}" if isinstance(each, float) else str(each or "")) for each in values]
    if row["error"] is None:
        written[0] = f'<a href="{escape(quote(link))}">{written[0]}</a>'
    return "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in zip(COLUMNS, written, strict=True))
