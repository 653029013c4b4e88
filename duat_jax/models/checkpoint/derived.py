"""Writing of a checkpoint that has the files of another one and its own weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from duat_jax.models.checkpoint.stored import Checkpoint

WEIGHTS_FIELDS = ("dtype", "torch_dtype", "quantization_config")
"""Fields of a configuration, and of those inside of it, that describe how weights are stored."""


def write_derived(
    folder: Path, source: Checkpoint, tensors: Mapping[str, np.ndarray], settings: Mapping[str, Any] | None = None
) -> None:
    """Write a checkpoint with the source's tokenizer, templates and other files, and with tensors of one dtype."""
    fields = _without_storage(source.settings() if settings is None else settings)
    fields["torch_dtype"] = str(next(iter(tensors.values())).dtype)  # the name that every release of transformers reads
    source.copy_rest(folder)
    (folder / "config.json").write_text(json.dumps(fields, indent=2, allow_nan=False) + "\n")
    save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def _without_storage(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_storage(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in WEIGHTS_FIELDS
    }
