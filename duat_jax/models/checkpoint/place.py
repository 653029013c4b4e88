"""Opening of checkpoints: a directory, a single file, or a model of the Hugging Face Hub."""

import os
from pathlib import Path, PurePath
from typing import Any

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.directory import Directory
from duat_jax.models.checkpoint.hub import PREFIX, download
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.stored import Checkpoint


def open_checkpoint(path: Any) -> Checkpoint:
    """Open the checkpoint at a path.

    Args:
        path: a Hugging Face checkpoint directory, a `.gguf` file, or `hub:OWNER/NAME`.

    Raises:
        BadCheckpoint: if there is none.
    """
    if not isinstance(path, str | os.PathLike):
        raise BadCheckpoint(
            f"{quoted(path)} is not the path of a checkpoint directory or a .gguf file, nor hub:OWNER/NAME"
        )
    address = PurePath(path).as_posix()
    place = download(address) if address.startswith(PREFIX) else Path(path)
    if place.is_dir():
        return Directory(place)
    if place.suffix.lower() == ".gguf" and place.is_file():
        from duat_jax.models.checkpoint.gguf_checkpoint import GgufCheckpoint  # slow to import

        return GgufCheckpoint(place)
    raise BadCheckpoint(
        f"{place} is not a directory: give a .gguf file, a checkpoint directory with config.json, model.safetensors"
        " and tokenizer.json, or hub:OWNER/NAME for a model of the Hugging Face Hub"
    )
