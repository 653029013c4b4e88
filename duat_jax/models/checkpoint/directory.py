"""Hugging Face checkpoint directories: `config.json`, `tokenizer.json` and safetensors files."""

import math
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.limits import FILE_HEADER, HEADERS, check_limit
from duat_jax.models.checkpoint.limits import INDEX as INDEX_BYTES
from duat_jax.models.checkpoint.mxfp4 import Mxfp4
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.sentence_modules import read_pooling
from duat_jax.models.checkpoint.stored import Stored
from duat_jax.models.checkpoint.tokenizer_configured import read_configured_tokenizer
from duat_jax.models.pooling import Pooling

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth", "model.ckpt")

WEIGHT_FILES = (
    *(".safetensors", ".index.json", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack"),
    *(".onnx", ".onnx_data", ".npy", ".npz", ".ot", ".pkl", ".tflite"),
)
"""Ends of the names of files that hold weights, or states of a training."""

MAPPED = 2**26
"""Bytes of a file that are read before its pages are released: they count as this process's memory until then."""

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Size of an entry, by storage type of weights."""

PACKED = {"U8": 1}
"""The same for storage types of packed weights."""


def read_index(index: Path) -> dict[str, str]:
    """Return the file of each tensor, from the index of a checkpoint in several files.

    Args:
        index: the index.

    Raises:
        BadCheckpoint: if it is damaged, or names a file outside of the checkpoint's folder.
    """
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
        """Return the vocabulary size in `config.json`, or `None`."""
        values = self.settings() if self.settings_path.is_file() else None
        size = values.get("vocab_size") if isinstance(values, dict) else None
        return size if isinstance(size, int) else None

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of `tokenizer.json` and its settings, without truncation or padding."""
        file, config = self._file("tokenizer.json"), self.settings() if self.settings_path.is_file() else None
        return read_configured_tokenizer(self.path, file, config)

    def pooling(self) -> Pooling:
        """Return the pooling of hidden states that `modules.json` states; the mean without that file."""
        return read_pooling(self.path, self.tokenizer)

    def copy_rest(self, folder: Path) -> None:
        """Copy every file but `config.json`, those that hold weights and hidden ones.

        Args:
            folder: the folder of another checkpoint.

        Raises:
            BadCheckpoint: naming every link that leaves the directory.
        """
        files = (path.relative_to(self.path) for path in sorted(self.path.rglob("*")) if path.is_file())
        rest = [file for file in files if not _is_weights(file.name) and not any(map(_is_hidden, file.parts))]
        rest.remove(Path("config.json"))
        raise_problems(self.path, [problem for name in rest if (problem := self._leaving(name))])
        for name in rest:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path / name, folder / name)

    def tensors(self) -> Stored:
        """Return the tensors of `model.safetensors`, or of the files that its index names.

        Raises:
            BadCheckpoint: naming every problem of the files' headers or the index.
        """
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

    def _sharded(self, index: Path) -> "Safetensors":
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


class _Place(NamedTuple):
    file: Path
    kind: str
    shape: list[int]


def _header_size(path: Path) -> int:
    """Return the size of a file's header as stated in the file, at most the size of the file."""
    try:
        with path.open("rb") as file:
            return min(int.from_bytes(file.read(8), "little"), path.stat().st_size)
    except OSError as error:
        raise BadCheckpoint(f"{path}: can't be read ({error})") from None


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError, ValueError) as error:
        raise BadCheckpoint(f"{path}: truncated or not a safetensors file ({error}); copy it again") from None


class Safetensors:
    """The tensors of safetensors files, with headers checked against the files' sizes before reading.

    Args:
        path: the path for messages.
        files: the files.

    Raises:
        BadCheckpoint: if a file is damaged, or its header is too large.
    """

    readable: Collection[str] = BYTES

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path = path
        self._places: dict[str, list[_Place]] = {}
        sizes = {file: _header_size(file) for file in files}
        for file, size in sizes.items():
            check_limit(file, "bytes of header", size, FILE_HEADER)
        check_limit(path, "bytes of headers", sum(sizes.values()), HEADERS)
        for file in files:
            opened = _open(file)
            for name in opened.keys():  # noqa: SIM118 - no mapping
                entry = opened.get_slice(name)
                place = _Place(file, entry.get_dtype(), entry.get_shape())
                self._places.setdefault(name, []).append(place)
        self._opened: tuple[Path, Any] | None = None
        self._mapped = 0

    def names(self) -> Collection[str]:
        """Return the names of all tensors."""
        return self._places.keys()

    def files_of(self, name: str) -> list[Path]:
        """Return the files that hold a tensor.

        Args:
            name: its name.
        """
        return [place.file for place in self._places.get(name, [])]

    def shape(self, name: str) -> list[int]:
        """Return a tensor's shape.

        Args:
            name: its name.
        """
        return self._places[name][0].shape

    def kind(self, name: str) -> str:
        """Return the storage type of a tensor's entries.

        Args:
            name: its name.
        """
        return self._places[name][0].kind

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Read a tensor into the host's memory.

        Args:
            name: its name.
            dtype: the dtype of the result.
        """
        file, kind, shape = self._places[name][0]
        if self._opened is None or self._opened[0] != file or self._mapped > MAPPED:
            self._opened, self._mapped = None, 0
            self._opened = file, _open(file)
        self._mapped += math.prod(shape) * (BYTES | PACKED)[kind]
        return self._opened[1].get_tensor(name).astype(dtype, copy=False)
