"""A directory that is written whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duat_jax.errors import BadCheckpoint


def check_new_directory(directory: Path | str) -> None:
    """Raise unless a directory can be made at a place, or an empty one is there.

    Args:
        directory: the place.

    Raises:
        BadCheckpoint: saying what is in the way.
    """
    place = Path(directory)
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise BadCheckpoint(f"{place} is there already: give a directory that isn't, or an empty one")
    if not place.absolute().parent.is_dir():
        raise BadCheckpoint(f"{place.absolute().parent} is not a directory: make it before writing {place.name} there")


@contextmanager
def new_directory(directory: Path | str) -> Iterator[Path]:
    """Make a directory that appears whole, when everything in it is written, or not at all.

    Args:
        directory: a new directory, or an empty one.

    Yields:
        Where its files are to be written.

    Raises:
        BadCheckpoint: if there is something at that place already.
    """
    check_new_directory(directory)
    place = Path(directory).absolute()
    made = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent))
    try:
        yield made
        made.chmod(0o755)
        made.replace(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
