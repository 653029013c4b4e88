"""The command `duat audit`."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.output import check_output, one_line_errors, to_json, write_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from symbolic.papers.claim import Finding


def _table(findings: "tuple[Finding, ...]") -> "RenderableType":
    from rich.table import Table

    table = Table("equation", "version", "verdict", "why", box=None, pad_edge=False, show_edge=False)
    table.columns[0].max_width, table.columns[2].max_width = 20, 14
    for f in findings:
        table.add_row(f.equation, f.source, f.verdict, f.reason)
    return table


def audit(
    json_file: Annotated[str | None, typer.Option("--json", help="Write JSON to this file, or - for output.")] = None,
    equation: Annotated[str | None, typer.Option(help="One equation, by its number or its name in the table.")] = None,
) -> None:
    """Decide every equation of the papers, and the claims between them: proved, or refuted with exact numbers."""
    with one_line_errors():
        if json_file not in (None, "-"):
            check_output(Path(json_file))
        from symbolic.papers.audit import as_dicts
        from symbolic.papers.audit import audit as decide

        findings = decide(equation)
        if json_file is not None:
            write_json(json_file, to_json(as_dicts(findings)))
        if json_file == "-":
            return
        if equation is not None:
            typer.echo("\n\n".join(map(str, findings)))
            return
        from rich.console import Console

        from duat_jax.explanation.table import WIDTH

        console = Console()
        console = console if console.is_terminal else Console(width=WIDTH)
        console.print(_table(findings))
        counts = Counter(f.verdict for f in findings)
        console.print("\n" + ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common()))
        console.print("duat audit --equation 31 shows one with its LaTeX, its correction and its numbers.")
