"""Files and directories that are written completely or not at all."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from duat_jax.errors import BadCheckpoint, DuatError

ABANDONED = 24 * 3600.0
"""The seconds after which a temporary file is taken for that of a killed process: another one writes without pauses."""


def path_of(path: Any, meaning: str) -> Path:
    """Return a path that a user gave; raise unless it is one."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        short = " ".join(repr(path).split())[:60]
        raise DuatError(f"{short} is not the path of {meaning}: give a string or a pathlib.Path")
    return Path(name)


def temporary_path(path: Path) -> Path:
    """Return an unused short name in the directory of a file, with links resolved."""
    return path.resolve().with_name(f".duat-{secrets.token_hex(8)}.part")


def write_file(path: Path, content: bytes, *, new: bool = False) -> None:
    """Create or replace a file: an interruption leaves either the old content or the new one."""
    # A process that is killed while it writes leaves a temporary file, which a write to the same directory removes
    # after a day.
    temporary = temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _remove_abandoned(temporary)
        if new:
            _link(temporary, path.resolve())
        else:
            temporary.replace(path.resolve())
    except OSError as error:
        error.filename = str(path)  # not the temporary one; that of a full disk is none
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _link(written: Path, path: Path) -> None:
    """Give a written file another name, which must be new."""
    try:
        os.link(written, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links, where the file is new at once and complete a moment later
        with path.open("xb") as file:
            file.write(written.read_bytes())


def _remove_abandoned(written: Path) -> None:
    """Remove the temporary files of killed processes from the directory of one that was just written."""
    # Both times are the file system's own, so that clocks of machines that share the directory don't matter.
    with suppress(OSError):
        oldest = written.stat().st_mtime - ABANDONED
        for path in written.parent.glob(".duat-*.part"):
            if path.stat().st_mtime < oldest:
                path.unlink()


def check_new_directory(directory: Path | str) -> None:
    """Raise unless a path is free for a new directory, or is an empty one."""
    place = path_of(directory, "a new directory")
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise BadCheckpoint(f"{place} is there already: give a new directory, or an empty one")
    if not place.absolute().parent.is_dir():
        raise BadCheckpoint(f"{place.absolute().parent} is not a directory: make it before writing {place.name} there")


@contextmanager
def new_directory(directory: Path | str) -> Iterator[Path]:
    """Create a directory that appears when all its files are written, or not at all."""
    check_new_directory(directory)
    place = Path(directory).absolute()
    temporary = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
