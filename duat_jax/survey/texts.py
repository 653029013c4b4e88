"""The texts of a corpus, read from files."""

import json
from collections.abc import Iterable
from pathlib import Path

from duat_jax.errors import BadText
from duat_jax.evaluation.running_text import read_texts
from duat_jax.survey.tables import require_tables

FIELD = "text"
"""The field of JSONL, and the column of Parquet, that holds a text."""


def read_corpus(paths: Iterable[Path]) -> list[str]:
    """Read the texts of files: `.jsonl` and `.parquet` have a field `text`, any other file is one text.

    Args:
        paths: the files.

    Raises:
        BadText: naming every file that can't be read, and why.
    """
    texts, problems = list[str](), list[str]()
    for path in paths:
        try:
            texts += _read(path)
        except BadText as error:
            problems.append(str(error))
    if problems or not texts:
        raise BadText("; ".join(problems) or "there is no text: give at least one file")
    return texts


def _read(path: Path) -> list[str]:
    if path.suffix not in (".jsonl", ".parquet"):
        return read_texts([path])
    try:
        rows = _rows_of_parquet(path) if path.suffix == ".parquet" else _rows_of_jsonl(path)
    except OSError as error:
        raise BadText(f"{path} can't be read: {error.strerror or error}") from None
    except ValueError as error:
        raise BadText(f"{path} can't be read: {error}") from None
    wrong = next((i for i, text in enumerate(rows) if not isinstance(text, str)), None)
    if wrong is not None:
        raise BadText(f"{path}: row {wrong} has no {FIELD!r} that is a string")
    return [text for text in rows if isinstance(text, str) and text.strip()]


def _rows_of_jsonl(path: Path) -> list[object]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    return [row.get(FIELD) if isinstance(row, dict) else None for row in rows]


def _rows_of_parquet(path: Path) -> list[object]:
    require_tables()
    from pyarrow.lib import ArrowException
    from pyarrow.parquet import read_table

    try:
        return read_table(path, columns=[FIELD])[FIELD].to_pylist()
    except (ArrowException, KeyError) as error:
        raise BadText(f"{path} has no column {FIELD!r}, or isn't Parquet: {error}") from None
