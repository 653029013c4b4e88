"""Hugging Face checkpoint directories: `config.json`, `tokenizer.json` and safetensors files."""

import shutil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.limits import INDEX as INDEX_BYTES
from duat_jax.models.checkpoint.mxfp4 import Mxfp4
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.safetensors_files import WEIGHTS, Safetensors
from duat_jax.models.checkpoint.sentence_modules import folders_of_modules, read_pooling
from duat_jax.models.checkpoint.settings import text_fields
from duat_jax.models.checkpoint.stored import StoredTensors
from duat_jax.models.checkpoint.tokenizer_configured import read_configured_tokenizer
from duat_jax.models.pooling import Pooling

INDEX = "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth", "model.ckpt")

WEIGHT_FILES = (
    *(".safetensors", ".index.json", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack"),
    *(".onnx", ".onnx_data", ".npy", ".npz", ".ot", ".pkl", ".tflite"),
)
"""Ends of the names of files that hold weights, or states of a training."""


def read_index(index: Path) -> dict[str, str]:
    """Return the file of each tensor, from the index of a checkpoint in several files."""
    content = read_json(index, INDEX_BYTES)
    files = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not files:
        raise BadCheckpoint(f"{index}: weight_map must give the file of each tensor, not {quoted(files)}")
    for name in files.values():
        if not isinstance(name, str) or Path(name).name != name or not name.isprintable():
            raise BadCheckpoint(f"{index}: weight_map must name files of this folder, not {quoted(name)}")
    return files


class Directory:
    """A Hugging Face checkpoint directory.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_path = path / "config.json"

    def _file(self, name: str) -> Path:
        if not (self.path / name).is_file():
            raise BadCheckpoint(
                f"{self.path} has no {name}: a checkpoint directory has config.json, model.safetensors and"
                " tokenizer.json"
            )
        return self.path / name

    def settings(self) -> Any:
        """Return the fields of `config.json`."""
        return read_json(self._file("config.json"))

    def vocabulary_size(self) -> int | None:
        """Return the vocabulary size in `config.json`, or in its `text_config`, or `None`."""
        values = self.settings() if self.settings_path.is_file() else None
        size = text_fields(values).get("vocab_size") if isinstance(values, dict) else None
        return size if isinstance(size, int) else None

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of `tokenizer.json` and its settings, without truncation or padding."""
        file, config = self._file("tokenizer.json"), self.settings() if self.settings_path.is_file() else None
        return read_configured_tokenizer(self.path, file, config)

    def pooling(self) -> Pooling:
        """Return the pooling of hidden states that `modules.json` states; the mean without that file."""
        return read_pooling(self.path, self.tokenizer)

    def copy_rest(self, folder: Path) -> None:
        """Copy every file but `config.json`, those that hold the model's weights, and hidden ones."""
        files = (path.relative_to(self.path) for path in sorted(self.path.rglob("*")) if path.is_file())
        modules = folders_of_modules(self.path)
        rest = [
            file
            for file in files
            if (file.parent in modules or not _is_weights(file.name)) and not any(map(_is_hidden, file.parts))
        ]
        rest.remove(Path("config.json"))
        raise_problems(self.path, [problem for name in rest if (problem := self._leaving(name))])
        for name in rest:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path / name, folder / name)

    def tensors(self) -> StoredTensors:
        """Return the tensors of `model.safetensors`, or of the files that its index names."""
        weights, index = self.path / WEIGHTS, self.path / INDEX
        if not weights.is_file():
            if index.is_file():
                return Mxfp4(self._sharded(index))
            if pickled := [name for name in PICKLED if (self.path / name).exists()]:
                raise BadCheckpoint(
                    f"{self.path} has no {WEIGHTS}, only {pickled[0]}, whose pickled weights can run any program: save"
                    " the model again as safetensors (model.save_pretrained in transformers does)"
                )
        return Mxfp4(Safetensors(weights, [self._file(WEIGHTS)]))

    def _sharded(self, index: Path) -> Safetensors:
        weight_map = read_index(index)
        names = list(dict.fromkeys(weight_map.values()))
        raise_problems(index, [problem for name in names if (problem := self._shard_problem(name))])
        stored = Safetensors(index, [self.path / name for name in names])
        problems = []
        for name in sorted(weight_map.keys() | set(stored.names())):
            actual = [file.name for file in stored.files_of(name)]
            if name not in weight_map:
                problems.append(f"tensor {name} of {', '.join(actual)} isn't in the index")
            elif weight_map[name] not in actual:
                elsewhere = f", but in {', '.join(actual)}" if actual else ""
                problems.append(f"tensor {name} isn't in {weight_map[name]}{elsewhere}")
            elif len(actual) > 1:
                problems.append(f"tensor {name} is in {' and in '.join(actual)}: keep one of them")
        raise_problems(index, problems)
        return stored

    def _shard_problem(self, name: str) -> str | None:
        """Return the problem with a file that the index names, or `None`: no file may lie outside the directory."""
        if not (self.path / name).is_file():
            return f"{quoted(name)} is missing: copy it here, or download the checkpoint again"
        return self._leaving(name)

    def _leaving(self, name: str | Path) -> str | None:
        """Return the problem with a file that is a link to a place outside the directory, or `None`."""
        here, target = self.path.resolve(), (self.path / name).resolve()
        # Hugging Face's cache keeps a snapshot's files as links into the blobs beside it.
        cached = here.parent.name == "snapshots" and target.parent == here.parent.parent / "blobs"
        if target.is_relative_to(here) or cached:
            return None
        return f"{name} is a link that leaves the folder: put the file itself here"


def _is_weights(name: str) -> bool:
    return name.endswith(WEIGHT_FILES)


def _is_hidden(name: str) -> bool:
    return name.startswith(".")
