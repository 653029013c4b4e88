"""The on-disk cache of compiled programs, shared by all commands."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MOST_BYTES = 512 * 2**20
"""The largest size of the cache."""


def start_jax(*, float64: bool = False) -> None:
    """Import and configure JAX for a command."""
    # JAX 0.10.0 prints two lines of the compiler's for every program from its cache.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import jax

    if float64:
        jax.config.update("jax_enable_x64", True)
    keep_compiled()


def keep_compiled() -> None:
    """Keep compiled programs, and what was traced for them, in the user's cache or `JAX_COMPILATION_CACHE_DIR`."""
    # Without a directory that can be written, or with `JAX_ENABLE_COMPILATION_CACHE=0`, nothing is kept; with
    # `DUAT_PROGRAMS=0`, what JAX compiled alone.
    import jax

    config: Any = jax.config
    if not config.jax_enable_compilation_cache:
        return
    if config.jax_compilation_cache_dir is None:
        if (directory := _directory()) is None:
            return
        _remove_oldest(directory, MOST_BYTES)
        config.update("jax_compilation_cache_dir", str(directory))
    os.environ.setdefault("DUAT_PROGRAMS", "1")
    # There are many small programs, and compiling each takes longer than reading it.
    for name, value in (
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
        ("jax_persistent_cache_min_entry_size_bytes", 0),
    ):
        if name.upper() not in os.environ:
            config.update(name, value)


def _directory() -> Path | None:
    """Return the cache directory, created if needed, or `None` if there can't be one."""
    try:
        cache_home = os.environ.get("XDG_CACHE_HOME", "")
        parent = Path(cache_home) if os.path.isabs(cache_home) else Path.home() / ".cache"
        directory = parent / "duat-jax" / "compiled"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError, ValueError):
        return None
    return directory if os.access(directory, os.W_OK | os.X_OK) else None


def _remove_oldest(directory: Path, most: int) -> None:
    """Remove the oldest files until the rest is small enough; files that can't be removed stay."""

    def sizes(files: Iterable[Path]) -> list[tuple[float, int, Path]]:
        entries = []
        for file in files:
            try:
                status = file.stat()
            except OSError:  # another command has removed it
                continue
            entries.append((status.st_mtime, status.st_size, file))
        return sorted(entries)

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
