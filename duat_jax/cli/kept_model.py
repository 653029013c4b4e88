"""The last model that a resident process loaded."""

import warnings
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duat_jax.cli.resident.client import stays

if TYPE_CHECKING:
    from duat_jax.models.transformer import Transformer

_kept: "tuple[Hashable, Transformer] | None" = None


def kept_model(path: Path, options: tuple[Hashable, ...], load: Callable[[], "Transformer"]) -> "Transformer":
    """Load a model; a resident process returns the last one again if its files and the options are the same.

    Args:
        path: a checkpoint directory or file.
        options: everything else that says how the model is loaded and read.
        load: loads it.
    """
    global _kept
    if not stays():
        return load()
    key = path.resolve(), _state(path), options
    if _kept is None or _kept[0] != key:
        _kept = None  # two models may be too large
        model, warned = _load(load)
        if warned:  # the next command has to warn too
            return model
        _kept = key, model
    return _kept[1]


def _state(path: Path) -> Hashable:
    """Return what changes when a file of a checkpoint is changed or replaced."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    states = [(file, file.stat()) for file in files]
    return tuple((file, state.st_ino, state.st_size, state.st_mtime_ns) for file, state in states)


def _load(load: Callable[[], "Transformer"]) -> "tuple[Transformer, bool]":
    """Load a model, and return whether a warning was shown."""
    warned, module = [], warnings
    show: Any = module.showwarning

    def note(*arguments: Any) -> None:
        warned.append(arguments)
        show(*arguments)

    module.showwarning = note  # type: ignore[assignment]
    try:
        return load(), bool(warned)
    finally:
        module.showwarning = show
