"""Copies of the golden checkpoints, to be damaged, and the real configurations among the fixtures."""

import json
import shutil
from pathlib import Path

from cases import GOLDEN
from safetensors.numpy import load_file, save_file


def copy_checkpoint(parent, name="gpt2", **settings):
    """Copy a golden checkpoint, to damage it, and return its directory."""
    directory = parent / name
    shutil.copytree(GOLDEN / name, directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | settings))
    return directory


def damage(directory, change):
    """Change the tensors of a checkpoint."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def change_tokenizer(directory, **changes):
    """Change some fields of a checkpoint's tokenizer."""
    file = directory / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def real_configurations():
    """Return every real `config.json` in the fixtures, by name."""
    return json.loads((Path(__file__).parent / "configurations.json").read_text())
