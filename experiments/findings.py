"""Pages of findings, rendered from the records of studies; protocols and tables have a page for each study."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from experiments.kept_results import ROOT
from experiments.markdown import Fields, cells, table
from experiments.record import Record, filled_sentence, record_of
from experiments.run import frames_of
from experiments.studies import studies, study_of
from experiments.study import Study
from experiments.table import Frames, Table, render
from experiments.verdict import Verdict
from typesetting.mathematics import is_formula, latex

FOLDER = ROOT / "docs" / "findings" / "tables"
"""Protocols and tables of studies, outside of the site's navigation and search."""
RECORDS = FOLDER.parent / "records.json"
"""The records of all studies."""
VERDICTS = "prediction", "what decides", "measured", "verdict"
PAGES = (
    "approximation",
    "generalization",
    "in-context",
    "long-context",
    "pruning",
    "lora",
    "images",
    "heads",
    "circuits",
    "masks",
    "emergence",
)
"""The pages of findings, in the order of the navigation."""
SPAN = re.compile(r"`([^`]+)`")
OWN = "none: "
"""The beginning of what stands in the place of a claim for a question that the papers don't answer."""


def tables_of(study: Study, frames: Frames) -> dict[str, list[str]]:
    """Return the lines of every table of a study, by its heading."""
    return {title: render(of, frames) if isinstance(of, Table) else of(frames) for title, of in study.tables.items()}


def _text(tables: dict[str, list[str]]) -> str:
    return "\n".join(line for title, lines in tables.items() for line in (f"## {title}", "", *lines, ""))


@cache
def record(name: str) -> Record:
    """Return the record of a study."""
    study, frames = study_of(name), frames_of(name)
    return record_of(name, study, frames, cells(_text(tables_of(study, frames))))


def records(page: str | None = None) -> list[Record]:
    """Return the records of every study, or of those of one page, the study with the page's name first."""
    found = [of for of in map(record, studies()) if page in (None, of.page)]
    return sorted(found, key=lambda of: of.study != of.page.replace("-", "_"))


def summary(shown: Record) -> list[str]:
    """Return a record as a list."""
    return [
        f"- **Claim.** {shown.claim}",
        f"- **Units.** {shown.n} {shown.unit}; what decides was stated {shown.stated}.",
        f"- **Outcome.** {shown.outcome} (95 % interval: {shown.method}).",
        f"- **Control.** {shown.control}.",
        f"- **Verdict.** The prediction is {shown.verdict}: {shown.answer}.",
        f"- **Strongest result against it.** {shown.against}",
        f"- **Limits.** {shown.limits}",
    ]


def _formula(span: re.Match[str]) -> str:
    """Return a span of code as it is, or between dollars if it is a formula."""
    return f"${latex(span[1])}$" if is_formula(span[1]) else span[0]


def page_of_tables(name: str) -> str:
    """Return the page of a study: its record, its protocol, its predictions and its tables."""
    study, shown = study_of(name), record(name)
    protocol = SPAN.sub(_formula, study.protocol.partition("\n")[2].strip())
    decided = table(VERDICTS, [tuple(map(str, of)) for of in shown.predictions])
    lines = [
        f"# {shown.question}",
        "",
        f"**{shown.headline}**",
        "",
        *summary(shown),
        "",
        f"From the page [{shown.page}](../{shown.page}.md); `python -m experiments {name}` runs it in a clone.",
        "",
        "## Protocol",
        "",
        protocol,
        "",
        "## Predictions",
        "",
        *decided,
        "",
        SPAN.sub(_formula, _text(tables_of(study, frames_of(name)))).rstrip(),
    ]
    return "\n".join(lines) + "\n"


def write_pages_of_tables(names: Sequence[str] | None = None) -> None:
    """Write the page of every study."""
    FOLDER.mkdir(exist_ok=True)
    for name in studies() if names is None else names:
        (FOLDER / f"{name}.md").write_text(page_of_tables(name), encoding="utf-8")


def _studies(first: Record, others: Sequence[Record]) -> str:
    """Return the studies of a page: the first one, whose finding heads the page, and a table of the others."""
    shown = [
        f"**{first.question}** {first.answer.capitalize()}. *The prediction, stated {first.stated}: "
        f"{first.predictions[0].prediction}: {first.verdict}, n = {first.n} {first.unit}.*",
        f"- *Compared with:* {first.control}.\n- *Against it:* {first.against}\n- *Limits:* {first.limits}"
        f"\n- [Protocol and tables](tables/{first.study}.md); `python -m experiments {first.study}` measures again",
    ]
    rows = [(f"[{of.question}](tables/{of.study}.md)", of.answer, of.headline) for of in others]
    return "\n\n".join([*shown, "\n".join(table(("question", "answer", "finding"), rows))] if rows else shown)


def _summary() -> Fields:
    """Return the fields of the summary and of the page of claims."""
    of_pages = [(page, records(page)) for page in PAGES if records(page)]
    findings = [(f"[{_title(page)}]({page}.md)", of[0].question, of[0].answer, of[0].headline) for page, of in of_pages]
    about = [of for _, found in of_pages for of in found if not of.claim.startswith(OWN)]
    answers = Counter(of.answer for of in about)
    rows = [(of.claim, f"[{of.question}](tables/{of.study}.md)", of.answer) for of in about]
    return {
        "studies": str(len(records())),
        "studies of claims": str(len(about)),
        "answers": ", ".join(f"{answers[verdict.answer]} *{verdict.answer}*" for verdict in Verdict),
        "summary": "\n".join(table(("page", "question", "answer", "finding"), findings)),
        "claims": "\n".join(table(("claim", "question", "answer"), rows)),
    }


def _title(page: str) -> str:
    """Return the title of a page of findings."""
    return (FOLDER.parent / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def fields(kept: dict[str, Any]) -> Fields:
    """Return the fields of all pages of findings."""
    found = _summary()
    for page in dict.fromkeys(of.page for of in records()):
        of_page = records(page)
        found[f"{page} / studies"] = _studies(of_page[0], of_page[1:])
    return found


def write_records() -> None:
    """Write all records into one file, for programs."""
    data = [{**of._asdict(), "predictions": [each._asdict() for each in of.predictions]} for of in records()]
    RECORDS.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def study_fields(name: str) -> Fields:
    """Return the fields of a study: the sentences of its record, and its tables with their cells."""
    study, frames = study_of(name), frames_of(name)
    tables = tables_of(study, frames)
    sentences = {key: str(value) for key, value in record(name)._asdict().items() if key != "predictions"}
    outcome = study.outcome.written(frames)
    numbers = {
        "outcome": outcome,
        "outcome / value": outcome.partition(" [")[0],
        "control": study.control.written(frames),
    }
    known = {**sentences, **numbers, **cells(_text(tables))}
    captions = {
        f"caption / {name}": filled_sentence(picture.caption, known) for name, picture in study.pictures.items()
    }
    texts = {f"table / {title}": "\n".join(lines) for title, lines in tables.items()}
    return {**known, "outcome in words": sentences["outcome"], **texts, **captions}
