"""Many prompts in one process: a file with a prompt on each line, and a directory with a row for each of them."""

import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
import typer

from duat_jax.cli.errors import DOES_NOT_HOLD, MISTAKE, DoesNotHold, in_one_line
from duat_jax.cli.groups import Options, flag
from duat_jax.cli.options import Source
from duat_jax.cli.output import Files, certify, page_of, to_json, write
from duat_jax.cli.progress import progress_bar
from duat_jax.errors import InvalidInput, NotFinite

FIELDS = "text", "pair", "image", "reference", "baseline", "align", "target", "contrast", "against", "position"
"""The options of which a line may have its own value, where the command has them."""

PLACES = "text", "out", "html", "parquet"
"""The options that no row depends on: what is read, and where it is written."""

OF_ONE_ANSWER = {name: flag(name) for name in ("plot", "viewer", "graphml", "save", "csv")} | {"json_file": "--json"}
"""The options that write the answer to one prompt."""

ANSWERED, REFUSED, FAILED = "answered", "refused", "failed"
"""The verdicts of answers that need not sum, and of prompts without one; all others are those of completeness."""

STATUS = {REFUSED: MISTAKE, FAILED: DOES_NOT_HOLD}
"""The exit status for a verdict."""

ROWS, MANIFEST = "rows.jsonl", "manifest.json"
"""The files of a directory."""

COMPARED = "reference", "baseline"
"""The fields with references of a prompt: a line that gives either has none of the command's."""

MOST_CHANGES = 5
"""The number of differences from earlier work that an error lists, and of lines with the same mistake."""

ANSWER_FIELDS = (
    *("verdict", "error", "notes", "explained", "answer", "headline", "value", "reference_value", "difference"),
    *("largest_token", "largest_token_index", "largest_token_part"),
    *("largest_layer", "largest_unit", "largest_unit_part", "result"),
)
"""The fields of a row beside what was asked; those that a prompt lacks are null."""

Row = dict[str, Any]
"""A prompt's row: what was asked, and the answer or the error."""


class PromptLine(NamedTuple):
    """A prompt of a file.

    Args:
        line: the number of its line, from 1.
        id: its name: that of the line, or else the line's number.
        fields: the values of `FIELDS` by name: those of the line, or else the command's.
    """

    line: int
    id: str
    fields: dict[str, Any]


def answer_prompts(question: Callable[..., Any], options: Options, values: Mapping[str, Any]) -> None:
    """Ask a command's question about every prompt of a file, and keep a row for each in a directory."""
    if given := [option for name, option in OF_ONE_ANSWER.items() if values.get(name) is not None]:
        raise InvalidInput(f"{', '.join(given)}: with --out each prompt has a row instead: leave it out")
    from duat_jax.display.page.index import counts_of

    groups = options.arguments(values).values()
    files = next(each for each in groups if isinstance(each, Files))
    source = next(each for each in groups if isinstance(each, Source))
    out, html = values["out"], values["html"]
    prompts = read_prompts(values["text"], options.kinds(FIELDS), values)
    source.open("call the function of the same name in Python with a list of them")
    work = _work(question.__name__, values, source)
    rows = begin(out, work, prompts)
    files.check()
    # A prompt whose page is missing is answered again, to the same row.
    done = {
        index
        for index, (prompt, row) in enumerate(zip(prompts, rows, strict=False))
        if not _changed(prompt, row) and (html is None or row["error"] or _page(out, prompt.line).exists())
    }
    for index in sorted(done):
        _say_error(rows[index])
    began, count = perf_counter(), len(done)
    with progress_bar("Prompts", "prompts") as report:
        for index in sorted(set(range(len(prompts))) - done):
            prompt = prompts[index]
            arguments = options.arguments({**values, **prompt.fields})
            arguments |= {name: source for name, each in arguments.items() if isinstance(each, Source)}
            row = answer_prompt(question, arguments, prompt, None if html is None else _page(out, prompt.line))
            _keep(out / ROWS, rows, index, row)
            done.add(index)
            report(len(done), len(prompts))
            _say_error(row)
    if html is not None:
        write(html, _index(rows, work, out, html).encode())
    if files.parquet is not None:
        write(files.parquet, _parquet(out / ROWS))
    now = f"{len(rows) - count} of them now in {perf_counter() - began:z.1f} s"
    typer.echo(f"{_counted(rows)} ({counts_of(rows)}), {now}: {out / ROWS}")
    if status := max(STATUS.get(row["verdict"], 0) for row in rows):
        raise typer.Exit(status)


def _say_error(row: Row) -> None:
    """Say on standard error what is wrong with a prompt, if anything is."""
    if row["error"] is not None:
        typer.echo(f"duat: prompt {row['id']} is {row['verdict']}: {row['error']}", err=True)


def _counted(rows: Sequence[Row]) -> str:
    """Return how many prompts there are, in words."""
    return f"{len(rows)} prompt{'s' if len(rows) > 1 else ''}"


def read_prompts(file: str | None, kinds: Mapping[str, Any], values: Mapping[str, Any]) -> list[PromptLine]:
    """Read the prompts of a file, and raise for everything that is wrong in its lines at once.

    Args:
        file: on each line JSON: a text, or an object with a text and, if wanted, an id and other fields.
        kinds: the types of the fields that the command has, by name.
        values: the command's own, for fields that a line leaves out.
    """
    if file is None or not os.path.isfile(file):
        raise InvalidInput(f"{file!r} is not a file: with --out, give a file with a prompt on each line")
    fields = {"id": str | int, **kinds}
    optional = [
        (name, kind | str if _repeats(kind) else kind | None, None) for name, kind in fields.items() if name != "text"
    ]
    line_type = msgspec.defstruct("Line", [("text", str), *optional], forbid_unknown_fields=True)
    prompts, problems, first = list[PromptLine](), defaultdict[str, list[int]](list), dict[str, int]()
    for number, line in enumerate(Path(file).read_bytes().removeprefix(b"\xef\xbb\xbf").rstrip().split(b"\n"), 1):
        if not line.strip():
            problems["it is empty"].append(number)
            continue
        try:
            given = msgspec.json.decode(line, type=str | line_type)
            own = _own({"text": given} if isinstance(given, str) else msgspec.structs.asdict(given), kinds)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            problems[_with_nearest(str(error), fields)].append(number)
            continue
        name = str(own.get("id", number))
        if first.setdefault(name, number) != number:
            problems[f"the id {name!r} is that of line {first[name]} too"].append(number)
        prompts.append(PromptLine(number, name, {each: own.get(each, values[each]) for each in kinds}))
    if problems:
        listed = "; ".join(f"{_lines(numbers)}: {problem}" for problem, numbers in problems.items())
        raise InvalidInput(
            f"{file}: {listed}. Give on each line a text in quotes, or an object with text and, if"
            f" wanted, {', '.join(name for name in fields if name != 'text')}"
        )
    return prompts


def _repeats(kind: Any) -> bool:
    """Return whether an option of a type may be repeated; a line may give one value alone."""
    return any(get_origin(each) is list for each in get_args(kind))


def _own(given: dict[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a line gives, without those of the command that they take the place of."""
    own = {name: value for name, value in given.items() if value is not None}
    for name in own.keys() & {name for name, kind in kinds.items() if _repeats(kind)}:
        own[name] = msgspec.convert([own[name]] if isinstance(own[name], str) else own[name], kinds[name])
    return (dict.fromkeys(COMPARED) | own) if own.keys() & set(COMPARED) else own


def _with_nearest(error: str, fields: Collection[str]) -> str:
    """Return the error of a line; that of an unknown field with the field whose name is nearest."""
    unknown = re.search("unknown field `(.*)`", error)
    nearest = get_close_matches(unknown[1], fields, 1) if unknown else []
    return "".join([error, *(f" (did you mean `{name}`?)" for name in nearest)])


def _lines(numbers: Sequence[int]) -> str:
    """Return the first of the lines with a mistake, and how many more there are."""
    shown = ", ".join(map(str, numbers[:MOST_CHANGES]))
    more = f" and {len(numbers) - MOST_CHANGES} more" if len(numbers) > MOST_CHANGES else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _work(command: str, values: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return all that every row depends on, as plain data: the command, its options and the model."""
    from duat_jax.evaluation.journal import fingerprint

    settings = {flag(name): value for name, value in values.items() if name not in {*PLACES, *OF_ONE_ANSWER}}
    return {
        "command": command,
        "duat-jax": version("duat-jax"),
        "weights": fingerprint(source.load(), source.config)[:16],
        **json.loads(json.dumps(settings, default=str)),
    }


def begin(out: Path, work: dict[str, Any], prompts: Sequence[PromptLine]) -> list[Row]:
    """Make a directory for rows, or return the rows that it has; raise if they are of other work.

    A last line without an end was being written when the command was killed, and goes. A line whose row has an error
    may be another one now. Where nothing was answered, nothing is lost, and other work may begin.
    """
    from duat_jax.files import write_file

    manifest, file = out / MANIFEST, out / ROWS
    try:
        begun = json.loads(manifest.read_bytes()) if manifest.exists() else {}
        lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
        rows = [json.loads(line) | {"result": None} for line in lines]
        answered = any(row["verdict"] != REFUSED for row in rows)
    except (ValueError, TypeError, KeyError):
        raise InvalidInput(f"{out} has damaged files: give another --out, or remove it") from None
    if "command" not in begun and out.exists() and any(each.suffix != ".part" for each in out.iterdir()):
        raise InvalidInput(f"{out} is not empty, and has no rows of prompts: give another --out")
    changes = _changes("", begun, work)
    for prompt, row in zip(prompts, rows, strict=False):
        changes += [] if row["error"] else _changed(prompt, row)
    if len(rows) > len(prompts):
        changes.append(f"{len(rows)} lines were answered, and {len(prompts)} are given")
    if changes and answered:
        more = [f"{len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else []
        raise InvalidInput(
            f"{out} has rows of other work: {'; '.join([*changes[:MOST_CHANGES], *more])}. Give another --out, or"
            " remove it"
        )
    if changes:
        rows = []
    out.mkdir(parents=True, exist_ok=True)
    write_file(manifest, (json.dumps(work, indent=1) + "\n").encode())
    write_file(file, b"".join(line + b"\n" for line in lines[: len(rows)]))
    return rows


def _changes(place: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each value that is another one now."""
    return [
        f"{place}{name} was {before.get(name)!r} and is {value!r}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def _changed(prompt: PromptLine, row: Row) -> list[str]:
    """Return a sentence for each field of a prompt that its row has otherwise."""
    return _changes(f"line {prompt.line}: ", row, {"id": prompt.id, **msgspec.to_builtins(prompt.fields)})


def answer_prompt(
    question: Callable[..., Any], arguments: Mapping[str, Any], prompt: PromptLine, page: Path | None
) -> Row:
    """Return the row of a prompt, and write its page; the row of a prompt that fails has the error."""
    from duat_jax.files import write_file

    row: Row = {"id": prompt.id, **msgspec.to_builtins(prompt.fields)}
    row |= dict.fromkeys(ANSWER_FIELDS)
    try:
        answer = question(**arguments)
        certify(answer)
        to_json(answer.record)
    except InvalidInput as error:
        return row | {"verdict": REFUSED, "error": in_one_line(str(error))}
    except (NotFinite, DoesNotHold) as error:
        return row | {"verdict": FAILED, "error": in_one_line(str(error))}
    view, output = answer.result.view(), answer.record["target"]["output"]
    largest, value, others = view.largest, float(view.runs[0].value), view.runs[1:]
    # Several references have a mean.
    reference = float(others[0].value if len(others) == 1 else value - view.value) if others else None
    if page is not None:
        page.parent.mkdir(exist_ok=True)
        write_file(page, page_of(answer).encode())
    return row | {
        "verdict": ANSWERED if view.completeness is None else view.completeness.verdict,
        "notes": [note.plain for note in answer.notes],
        "explained": view.target,
        "answer": output and output["text"],
        "headline": view.headline,
        "value": value,
        "reference_value": reference,
        "difference": float(view.value) if others else None,
        "largest_token": None if largest.token is None else answer.record["tokens"][largest.token],
        "largest_token_index": largest.token,
        **{f"largest_{name}": number for name, number in largest._asdict().items() if name != "token"},
        "result": answer.record,
    }


def _keep(file: Path, rows: list[Row], index: int, row: Row) -> None:
    """Write a row in its place, or after all others, and keep it without its result."""
    from duat_jax.files import write_file

    short = row | {"result": None}
    if index == len(rows):
        with file.open("ab") as end:
            end.write(_line(row))
        rows.append(short)
    elif rows[index] != short:
        lines = file.read_bytes().split(b"\n")
        lines[index] = _line(row).removesuffix(b"\n")
        write_file(file, b"\n".join(lines))
        rows[index] = short


def _line(row: Row) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def _page(out: Path, line: int) -> Path:
    """Return the file of a prompt's page, named by its line: no id can lead out of the directory."""
    return out / "pages" / f"{line}.html"


def _index(rows: Sequence[Row], work: Mapping[str, Any], out: Path, html: Path) -> str:
    """Return the page that lists all prompts, each with a link to its own page."""
    from duat_jax.display.page.index import index_document

    pages = (_page(out, line).resolve() for line in range(1, len(rows) + 1))
    links = [Path(os.path.relpath(page, html.resolve().parent)).as_posix() for page in pages]
    made_by = f"duat {work['command']} of duat-jax {work['duat-jax']}, with {work['--model'] or 'the embedded model'}"
    return index_document(_counted(rows), made_by, rows, links)


def _parquet(file: Path) -> bytes:
    """Return the rows as Parquet; a result, whose fields depend on the prompt, is a text of JSON in it."""
    import pyarrow
    from pyarrow import parquet

    rows = map(json.loads, file.read_bytes().splitlines())
    table = pyarrow.Table.from_pylist([row | {"result": json.dumps(row["result"])} for row in rows])
    content = io.BytesIO()
    parquet.write_table(table, content)
    return content.getvalue()
