"""Compiled programs, kept from one command to the next."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MOST_BYTES = 512 * 2**20
"""What all kept programs may take together."""


def start_jax(*, float64: bool = False) -> None:
    """Import JAX as the commands use it.

    Args:
        float64: whether what a command computes may be float64.
    """
    # JAX 0.10.0 prints two lines of the compiler's for every program that it kept itself.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax

    if float64:
        jax.config.update("jax_enable_x64", True)
    keep_compiled()


def keep_compiled() -> None:
    """Let JAX keep compiled programs in the user's cache directory; `JAX_COMPILATION_CACHE_DIR` names another one.

    Without a directory that can be written, or with `JAX_ENABLE_COMPILATION_CACHE=0`, nothing is kept.
    """
    import jax

    config: Any = jax.config
    if not config.jax_enable_compilation_cache:
        return
    if config.jax_compilation_cache_dir is None:
        if (directory := _directory()) is None:
            return
        _remove_oldest(directory, MOST_BYTES)
        config.update("jax_compilation_cache_dir", str(directory))
    # Small programs are many, and compiling each takes longer than reading it.
    for name, value in (
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", 0),
    ):
        if name.upper() not in os.environ:
            config.update(name, value)


def _directory() -> Path | None:
    """Return a directory of our own in the user's cache, made if need be; `None` where there can't be one."""
    try:
        named = os.environ.get("XDG_CACHE_HOME", "")
        parent = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
        directory = parent / "duat-jax" / "compiled"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError, ValueError):
        return None
    return directory if os.access(directory, os.W_OK | os.X_OK) else None


def _remove_oldest(directory: Path, most: int) -> None:
    """Remove the files that were written first until all together are small enough; what can't be removed stays."""

    def sizes(files: Iterable[Path]) -> list[tuple[float, int, Path]]:
        found = []
        for file in files:
            try:
                status = file.stat()
            except OSError:  # another command has removed it
                continue
            found.append((status.st_mtime, status.st_size, file))
        return sorted(found)

    try:
        files = sizes(directory.iterdir())
    except OSError:
        return
    total = sum(size for _, size, _ in files)
    for _, size, file in files:
        if total <= most:
            return
        try:
            file.unlink()
        except OSError:
            continue
        total -= size
