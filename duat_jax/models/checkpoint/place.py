"""Opening of checkpoints: a directory, a single file, or a model of the Hugging Face Hub."""

import os
from pathlib import Path, PurePath
from typing import Any

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.directory import Directory
from duat_jax.models.checkpoint.hub import PREFIX, download, hub_name
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.stored import Checkpoint

EMBEDDED = Path(__file__).parent.parent / "embedded"
"""The language model that ships with the package."""


def or_embedded(path: Any) -> Any:
    """Return a path, or that of the embedded model if it is absent."""
    return EMBEDDED if path is None else path


def local_path(path: Any) -> Path:
    """Return a checkpoint's path on this machine; a model of the Hugging Face Hub is downloaded."""
    if not isinstance(path, str | os.PathLike):
        raise BadCheckpoint(
            f"{quoted(path)} is not the path of a checkpoint directory or a .gguf file, nor hub:OWNER/NAME"
        )
    address = PurePath(path).as_posix()
    return download(address) if address.startswith(PREFIX) else Path(path)


def open_checkpoint(path: Any) -> Checkpoint:
    """Open the checkpoint at a path."""
    place = local_path(path)
    if place.is_dir():
        return Directory(place)
    if place.suffix.lower() == ".gguf" and place.is_file():
        from duat_jax.models.checkpoint.gguf_checkpoint import GgufCheckpoint  # slow to import

        return GgufCheckpoint(place)
    if place.suffix.lower() == ".gguf":
        raise BadCheckpoint(f"there is no file {place.name} in {place.absolute().parent}: give the path of the file")
    name = hub_name(str(path))
    wanted = f"{name}, if the model of the Hugging Face Hub is meant" if name else "hub:OWNER/NAME for one of the hub"
    raise BadCheckpoint(
        f"{place} is not a directory: give a .gguf file, a checkpoint directory with config.json, model.safetensors"
        f" and tokenizer.json, or {wanted}"
    )
