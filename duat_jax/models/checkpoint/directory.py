"""A Hugging Face checkpoint directory: `config.json`, `tokenizer.json`, safetensors files, with an index if many."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.limits import FILE_HEADER, HEADERS, check_limit
from duat_jax.models.checkpoint.limits import INDEX as INDEX_BYTES
from duat_jax.models.checkpoint.mxfp4 import Mxfp4
from duat_jax.models.checkpoint.problems import raise_problems, shown
from duat_jax.models.checkpoint.settings import read_json
from duat_jax.models.checkpoint.stored import Stored
from duat_jax.models.checkpoint.tokenizer import read_tokenizer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.bin", "model.pt", "model.pth", "model.ckpt")

MAPPED = 2**26
"""Bytes of a file that are read before its pages are given back: they count as this process's memory until then."""

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Size of an entry, of the kinds that weights may be stored as."""

PACKED = {"U8": 1}
"""The same of kinds that stand for weights of another one."""


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
        """Return what `config.json` says."""
        return read_json(self._file("config.json"))

    def vocabulary_size(self) -> int | None:
        """Return the number of tokens that `config.json` says; `None` where there is none, or it doesn't say."""
        values = self.settings() if self.settings_path.is_file() else None
        size = values.get("vocab_size") if isinstance(values, dict) else None
        return size if isinstance(size, int) else None

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of `tokenizer.json`, without truncation or padding."""
        return read_tokenizer(self._file("tokenizer.json"))

    def tensors(self) -> Stored:
        """Return the tensors of `model.safetensors`, or of the files that its index names.

        Raises:
            BadCheckpoint: naming everything that is wrong with the files' headers or the index.
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
        content = read_json(index, INDEX_BYTES)
        told = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(told, dict) or not told:
            raise BadCheckpoint(f"{index}: weight_map must give the file of each tensor, not {shown(told)}")
        names = list(dict.fromkeys(told.values() if all(isinstance(each, str) for each in told.values()) else [None]))
        raise_problems(index, [problem for name in names if (problem := self._shard_problem(name))])
        stored = Safetensors(index, [self.path / name for name in names])
        problems = []
        for name in sorted(told.keys() | set(stored.names())):
            found = [file.name for file in stored.files_of(name)]
            if name not in told:
                problems.append(f"tensor {name} of {', '.join(found)} isn't in the index")
            elif told[name] not in found:
                others = f", but in {', '.join(found)}" if found else ""
                problems.append(f"tensor {name} isn't in {told[name]}{others}")
            elif len(found) > 1:
                problems.append(f"tensor {name} is in {' and in '.join(found)}: keep one of them")
        raise_problems(index, problems)
        return stored

    def _shard_problem(self, name: Any) -> str | None:
        """Return what is wrong with the name of a file in the index: it may not lead out of the directory."""
        if not isinstance(name, str) or Path(name).name != name or not name.isprintable():
            return f"weight_map must name files of this folder, not {shown(name)}"
        if not (self.path / name).is_file():
            return f"{shown(name)} is missing: copy it here, or download the checkpoint again"
        here, target = self.path.resolve(), (self.path / name).resolve()
        # Hugging Face's cache keeps a snapshot's files as links into the blobs beside it.
        cached = here.parent.name == "snapshots" and target.parent == here.parent.parent / "blobs"
        if target.parent != here and not cached:
            return f"{name} is a link that leaves the folder: put the file itself here"
        return None


class _Place(NamedTuple):
    file: Path
    kind: str
    shape: list[int]


def _header_size(path: Path) -> int:
    """Return the bytes of a file's header as the file states them, at most all of it."""
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
    """The tensors of safetensors files; their headers are checked against the files' sizes before anything is read.

    Args:
        path: what is named in messages.
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
        """Return what a tensor's entries are stored as.

        Args:
            name: its name.
        """
        return self._places[name][0].kind

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Return a tensor in the host's memory.

        Args:
            name: its name.
            dtype: what its entries become.
        """
        file, kind, shape = self._places[name][0]
        if self._opened is None or self._opened[0] != file or self._mapped > MAPPED:
            self._opened, self._mapped = None, 0
            self._opened = file, _open(file)
        self._mapped += math.prod(shape) * (BYTES | PACKED)[kind]
        return self._opened[1].get_tensor(name).astype(dtype, copy=False)
