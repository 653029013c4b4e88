"""The files that commands write, and what they print."""

import io
import json
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duat_jax.cli.errors import DOES_NOT_HOLD, DoesNotHold, NotWritten, require_holding, require_no_failure
from duat_jax.cli.groups import Fields

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType
    from rich.text import Text as Line

    from duat_jax.display.examples import Examples
    from duat_jax.forms.completeness import Completeness


@dataclass(frozen=True, kw_only=True)
class Files:
    """Options for the files that a command writes; each is `None` if absent."""

    work: Annotated[
        Path | None, typer.Option(help="Keep finished results in this file; an interrupted run continues from it.")
    ] = None
    circuits: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            help="Write the circuits to this CSV file: every scored unit, or of more than 10,000 those of the circuit.",
        ),
    ] = None
    plot: Annotated[Path | None, typer.Option(help="Write the picture to this file: .png, .pdf or .svg.")] = None
    html: Annotated[
        Path | None, typer.Option(help="Write an interactive page to this file, which opens without a network: .html.")
    ] = None
    viewer: Annotated[
        Path | None,
        typer.Option(help="Write the graph of the neurons for circuit-tracer's and Neuronpedia's viewers: .json."),
    ] = None
    graphml: Annotated[
        Path | None, typer.Option(help="Write streams and moves as GraphML: .graphml; needs networkx.")
    ] = None
    save: Annotated[
        Path | None,
        typer.Option(help="Keep the result in this file, which duat.open reads in Python: .safetensors, or no ending."),
    ] = None
    csv: Annotated[
        Path | None,
        typer.Option(help="Write every number of the result to this CSV file, one in each row; needs pandas."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Ask about every line of a file, a text in quotes or a JSON object, and keep the answers as rows in"
            " this directory, where the same command continues; with --html a page lists them."
        ),
    ] = None
    parquet: Annotated[
        Path | None,
        typer.Option(help="Write the rows of --out to this file too: .parquet; needs pyarrow."),
    ] = None
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write JSON to this file, or to standard output for -.")
    ] = None

    def check(self, *directories: Path | None) -> None:
        """Raise if a file can't be written, before anything is computed."""
        from duat_jax.errors import InvalidInput
        from duat_jax.extras import requiring

        if self.csv is not None:
            with requiring("dataframes", "--csv", package="pandas"):
                import pandas  # noqa: F401
        if self.graphml is not None:
            with requiring("graphs", "--graphml"):
                import networkx  # noqa: F401
        if self.parquet is not None:
            with requiring("survey", "--parquet", package="pyarrow"):
                import pyarrow  # noqa: F401
            if self.out is None:
                raise InvalidInput("--parquet writes the rows of --out DIR: give that too")
        json_path = None if self.json_file in (None, "-") else Path(str(self.json_file))
        tables = self.html, self.viewer, self.graphml, self.circuits, self.csv, self.parquet
        written = [path for path in (json_path, self.plot, *tables, self.work, self.save) if path is not None]
        for path in written:
            check_output(path)
        if special := [str(path) for path in (self.work, self.save) if path is not None and _is_special(path)]:
            raise InvalidInput(
                f"{special[0]} isn't a regular file, and what is kept is read again: give a regular file"
            )
        written += [path for path in directories if path is not None]
        resolved = [path.resolve() for path in written]
        if twice := [str(path) for i, path in enumerate(written) if resolved[i] in resolved[:i]]:
            raise InvalidInput(f"{', '.join(twice)} is given for two outputs: give two files")


AnyFiles = Annotated[Files, Fields("out", "plot", "html", "save", "csv", "parquet", "json_file")]
PictureFiles = Annotated[Files, Fields("plot", "save", "csv", "json_file")]
PageFiles = Annotated[Files, Fields("out", "html", "save", "csv", "parquet", "json_file")]
StudyFiles = Annotated[Files, Fields("work", "plot", "json_file")]
JsonFile = Annotated[Files, Fields("json_file")]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a command's question: what is certified, printed and written.

    Args:
        notes: lines on what was asked, before the others.
        parts: tables and lines.
        text: text that is printed as it is.
        record: plain data for the JSON.
        result: the result, which gives the picture, the page and the files of numbers.
        figure: draws the picture, where no result does.
        texts: further files and their contents.
        examples: of the model, for the page.
        directory: writes a directory, where a command does, once everything is certified.
        certified: sums that have to hold, by what they are.
        unbroken: sums that must not fail, by what they are: that of a zero change isn't conclusive.
        holds: whether all that the command checks holds.
    """

    notes: "Sequence[Line]" = ()
    parts: "Iterable[RenderableType]" = ()
    text: str = ""
    record: Any = None
    result: Any = None
    figure: "Callable[[], Figure] | None" = None
    texts: Mapping[Path, str] = field(default_factory=dict)
    examples: "Examples | None" = None
    directory: "Callable[[], None] | None" = None
    certified: "Iterable[tuple[str, Completeness]]" = ()
    unbroken: "Iterable[tuple[str, Completeness]]" = ()
    holds: bool = True


def check_output(path: Path) -> None:
    """Raise if a file can't be written, before anything is computed."""
    from duat_jax.errors import InvalidInput
    from duat_jax.files import temporary_path

    try:
        if path.is_dir() or not path.name:
            raise InvalidInput(f"{str(path)!r} is a directory: give the name of a file")
        if not path.absolute().parent.is_dir():
            raise InvalidInput(f"{path.parent} is not a directory: make it before writing {path.name} there")
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise InvalidInput(f"{path} can't be written to: give another file")
            return
        temporary = temporary_path(path)
        temporary.touch()
        temporary.unlink()
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:  # a null character is a ValueError
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"can't write {str(path)!r}: {why}; give another file") from None


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe or the like; raise for invalid names."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def write(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; write directly to a special file, such as a device."""
    from duat_jax.files import write_file

    if _is_special(path):
        path.write_bytes(content)
    else:
        write_file(path, content)


def to_json(value: Any) -> str:
    """Convert a result to JSON."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        raise DoesNotHold("the result does not hold: it has numbers that are NaN or infinite") from None


def show(*parts: "RenderableType") -> None:
    """Print to standard output, as wide as the terminal, or as tables are by default."""
    from rich.console import Console

    from duat_jax.display.result import WIDTH

    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    for part in parts:
        # A line to be copied stays one line; `print` joins texts and forgets that.
        uncut = getattr(part, "no_wrap", None)
        console.print(part, crop=False, no_wrap=uncut, overflow="ignore" if uncut else None)


def certify(answer: Answer) -> None:
    """Raise unless every sum of an answer that has to hold does."""
    for label, completeness in answer.certified:
        require_holding(label, completeness)
    for label, completeness in answer.unbroken:
        require_no_failure(label, completeness)


def page_of(answer: Answer) -> str:
    """Return the page of an answer's result, with the model and the command that made it."""
    made = {"model": answer.record["model"], "command": shlex.join(["duat", *sys.argv[1:]])}
    return answer.result.to_html(examples=answer.examples, provenance=made)


def deliver(answer: Answer, files: Files) -> None:
    """Certify an answer, print its tables unless the JSON goes to standard output, and write its files."""
    certify(answer)
    content, result = to_json(answer.record), answer.result
    pages = {} if files.html is None else {files.html: page_of(answer)}
    texts = pages | dict(answer.texts)
    for file, text in texts.items():
        if file != files.circuits:
            typer.echo(f"{file} is going to have {len(text.encode()) / 1e6:.2f} MB", err=True)
    if answer.directory is not None:
        answer.directory()
    if files.json_file != "-":
        typer.echo(answer.text, nl=False)
        show(*answer.notes, *answer.parts)
    try:
        if files.plot is not None:
            picture = io.BytesIO()
            (answer.figure or result.plot)().savefig(picture, format=files.plot.suffix[1:].lower(), dpi=150)
            write(files.plot, picture.getvalue())
        for path, text in texts.items():
            write(path, text.encode())
        if files.save is not None:
            result.save(files.save)
        if files.csv is not None:
            write(files.csv, result.to_dataframe().to_csv(index=False).encode())
        if files.json_file not in (None, "-"):
            write(Path(str(files.json_file)), content.encode())
    except OSError as error:
        unwritten = error.filename or files.plot or files.json_file or files.save or files.csv
        raise NotWritten(
            f"{unwritten} couldn't be written: {error.strerror or error}; the result was computed"
        ) from None
    if files.json_file == "-":
        typer.echo(content, nl=False)
    if not answer.holds:
        raise typer.Exit(DOES_NOT_HOLD)
