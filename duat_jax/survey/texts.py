"""The texts of a corpus, read from local files and from addresses of fsspec."""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.extras import requiring
from duat_jax.survey.tables import require_tables

FIELD = "text"
"""The field of JSONL, and the column of Parquet, that holds a text."""

REMOTE = "://"
"""The sign of an address, which no local path has."""


def read_corpus(paths: Iterable[Path | str]) -> list[str]:
    """Read the texts of files: `.jsonl` and `.parquet` have a field `text`, any other file is one text."""
    texts, problems = list[str](), list[str]()
    for path in map(str, paths):
        try:
            texts += _read(path)
        except InvalidInput as error:
            problems.append(str(error))
    if problems or not texts:
        raise InvalidInput("; ".join(problems) or "there is no text: give at least one file")
    return texts


def _read(path: str) -> list[str]:
    kind = _suffix(path)
    read = {".jsonl": _rows_of_jsonl, ".parquet": _rows_of_parquet}.get(kind, _one_text)
    try:
        with _opened(path) as file:
            rows = read(file)
    except DuatError as error:
        raise InvalidInput(f"{path} {error}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} isn't UTF-8 text") from None
    except Exception as error:
        # Every file system of fsspec has errors of its own, some of several lines.
        if REMOTE not in path and not isinstance(error, OSError | ValueError):
            raise
        name = "" if isinstance(error, ImportError | ValueError) else f"{type(error).__name__}: "
        why = getattr(error, "strerror", None) or f"{name}{error}"
        raise InvalidInput(f"{path} can't be read: {' '.join(why.split())}") from None
    wrong = next((i for i, text in enumerate(rows) if not isinstance(text, str)), None)
    if wrong is not None:
        raise InvalidInput(f"{path}: row {wrong} has no {FIELD!r} that is a string")
    return [text for text in rows if isinstance(text, str) and text.strip()]


def _suffix(path: str) -> str:
    """Return how the name of a file ends; of a chain of addresses, such as `zip://a.jsonl::s3://b.zip`, the first."""
    if REMOTE in path:
        path = next(part for part in path.split("::") if REMOTE in part).partition("?")[0]
    return PurePosixPath(path).suffix


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    if REMOTE not in path:
        return open(path, "rb")
    with requiring("survey", "is a remote file, which"):
        import fsspec
    return fsspec.open(path, "rb")


def _one_text(file: BinaryIO) -> list[object]:
    text = file.read().decode()
    if not text.strip():
        raise DuatError("is empty")
    return [text]


def _rows_of_jsonl(file: BinaryIO) -> list[object]:
    rows = [json.loads(line) for line in file if line.strip()]
    return [row.get(FIELD) if isinstance(row, dict) else None for row in rows]


def _rows_of_parquet(file: BinaryIO) -> list[object]:
    require_tables()
    from pyarrow.lib import ArrowException
    from pyarrow.parquet import read_table

    try:
        return read_table(file, columns=[FIELD])[FIELD].to_pylist()
    except (ArrowException, KeyError) as error:
        raise DuatError(f"has no column {FIELD!r}, or isn't Parquet: {error}") from None
