"""Packages that only some features need: the extras of `pyproject.toml`."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from duat_jax.errors import DuatError


def install(extra: str, package: str = "") -> str:
    """Return the command that installs an extra's packages, or one, by their own names: no index need have this one.

    Example:
        >>> install("serve")
        "pip install 'starlette>=0.40' 'uvicorn>=0.30'"
    """
    try:
        listed = metadata.requires("duat-jax") or []
    except metadata.PackageNotFoundError:  # a clone on the path that was never installed
        return f"pip install '.[{extra}]' in the clone"
    wanted = (line for line in listed if f'extra == "{extra}"' in line and line.startswith(package))
    return shlex.join(["pip", "install", *(line.partition(";")[0] for line in wanted)])


@contextmanager
def requiring(extra: str, feature: str, kind: type[DuatError] = DuatError, package: str = "") -> Iterator[None]:
    """Say how to install an extra's packages, or the one that is needed, where an import in this block fails."""
    try:
        yield
    except ImportError as error:
        needed = f"{package}, which" if package else "packages that"
        raise kind(f"{feature} needs {needed} can't be imported ({error}): {install(extra, package)}") from None
