"""The command `duat audit`."""

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.output import Answer, JsonFile

if TYPE_CHECKING:
    from rich.console import RenderableType

    from symbolic.audit.claim import Finding


class FigureFormat(StrEnum):
    """The output format of a figure."""

    unicode = "unicode"
    latex = "latex"


def _table(findings: "tuple[Finding, ...]") -> "RenderableType":
    from rich.table import Table

    table = Table("equation", "version", "verdict", "why", box=None, pad_edge=False, show_edge=False)
    table.columns[0].max_width, table.columns[2].max_width = 20, 18
    for f in findings:
        table.add_row(f.equation, f.source, f.verdict, f.reason)
    return table


def _check_options(figure: int | None, format: FigureFormat | None, **others: str | None) -> None:
    from symbolic.errors import SymbolicError

    conflicts = [f"--{name}" for name, value in others.items() if value is not None]
    if figure is not None and conflicts:
        raise SymbolicError(f"--figure and {' and '.join(conflicts)} can't be combined: give one of them")
    if figure is None and format is not None:
        raise SymbolicError("--format is for a figure: add --figure 2, or leave it out")


@command("duat audit", "duat audit --equation 31")
def audit(
    *,
    files: JsonFile,
    equation: Annotated[str | None, typer.Option(help="One equation, by its number or its name in the table.")] = None,
    figure: Annotated[
        int | None, typer.Option(help="A figure of the appendix, computed: 2, the parameters layer by layer.")
    ] = None,
    verdict: Annotated[str | None, typer.Option(help="Only what is found to be so, such as 'does not hold'.")] = None,
    version: Annotated[str | None, typer.Option(help="Only this version of the paper: 000, 001 or 003.")] = None,
    format: Annotated[FigureFormat | None, typer.Option(help="Format of the figure; unicode if absent.")] = None,
) -> Answer:
    """Check every equation of the papers, and the claims between them: proved, or refuted with exact numbers."""
    _check_options(figure, format, equation=equation, verdict=verdict, version=version, json=files.json_file)
    if figure is not None:
        from symbolic.audit.figure import figure as compute

        computed = compute(figure)
        text = computed.latex() if format == FigureFormat.latex else computed.unicode()
        return Answer(text=f"{text}\n", holds=computed.verified)
    from duat_jax.json_record import as_record
    from duat_jax.verification.record import AuditRecord
    from symbolic.audit.audit import as_dicts
    from symbolic.audit.audit import audit as decide

    findings = decide(equation, verdict=verdict, version=version)
    record = as_record(AuditRecord, None, findings=as_dicts(findings))
    if equation is not None:
        return Answer(record=record, text="\n\n".join(map(str, findings)) + "\n")
    counts = Counter(finding.verdict for finding in findings)
    return Answer(
        record=record,
        parts=[
            _table(findings),
            "\n" + ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common()),
            "duat audit --equation 31 shows one with its LaTeX, its correction and its numbers.",
        ],
    )
