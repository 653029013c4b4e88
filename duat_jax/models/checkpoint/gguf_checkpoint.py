"""GGUF files as checkpoints: tensors under Hugging Face's names, dequantised and in Hugging Face's layout."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from tokenizers import Tokenizer

from duat_jax.models.chat import template_of
from duat_jax.models.checkpoint.gguf_architectures import Architecture, Layout, architecture_of
from duat_jax.models.checkpoint.gguf_gpt_oss import GptOssTensors
from duat_jax.models.checkpoint.gguf_header import Header, read_header
from duat_jax.models.checkpoint.gguf_settings import FACTORS, LONGROPE, read_settings
from duat_jax.models.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.sentence_modules import write_pooling
from duat_jax.models.checkpoint.stored import StoredTensors
from duat_jax.models.checkpoint.tokenizer_settings import CHAT_TEMPLATE
from duat_jax.models.checkpoint.tokenizer_settings import CONFIG as TOKENIZER_CONFIG
from duat_jax.models.pooling import Pooling

EMBEDDING = "token_embd.weight"
"""The tensor whose rows are the tokens' embeddings."""

POOLINGS = {0: "mean", 1: "mean", 2: "cls", 3: "lasttoken"}
"""Modes of pooling, by llama.cpp's number; zero states none."""

CHUNK = 2**20
"""The approximate number of entries that are dequantised at once, which limits the memory of their float32 values."""


class GgufCheckpoint:
    """A checkpoint in a GGUF file.

    Args:
        path: the file.

    Raises:
        BadCheckpoint: if its header is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.settings_path = path
        self.header = read_header(path)

    def settings(self) -> dict[str, Any]:
        """Return the metadata as fields of a `config.json`."""
        return read_settings(self.settings_path, self.header)

    def vocabulary_size(self) -> int | None:
        """Return the smaller of the stated vocabulary size and the number of embeddings, or `None`."""
        metadata, places = self.header
        stated = metadata.get(f"{metadata.get('general.architecture')}.vocab_size")
        sizes = [stated] if isinstance(stated, int) else []
        sizes += places[EMBEDDING].shape[:1] if EMBEDDING in places else []
        return min(sizes, default=None)

    def tensors(self) -> StoredTensors:
        """Return the tensors."""
        config = self.settings()
        stored = GgufTensors(self.settings_path, self.header, config)
        return GptOssTensors(stored, config["num_local_experts"]) if config["model_type"] == "gpt_oss" else stored

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that the metadata describe."""
        return read_gguf_tokenizer(self.settings_path, self.header.metadata)

    def pooling(self) -> Pooling:
        """Return the pooling of hidden states that the metadata state; the mean where they state none."""
        name = f"{self.header.metadata.get('general.architecture')}.pooling_type"
        kind = self.header.metadata.get(name, 0)
        if isinstance(kind, int) and kind in POOLINGS:
            return Pooling((POOLINGS[kind],))
        return Pooling(problem=f"{self.settings_path}: {name} = {quoted(kind)} isn't supported")

    def copy_rest(self, folder: Path) -> None:
        """Write the tokenizer into a folder, its chat template with the tokens that this may write, and the pooling."""
        tokenizer, fields = self.tokenizer(), {"tokenizer_class": "PreTrainedTokenizerFast"}
        tokenizer.save(str(folder / "tokenizer.json"))
        if template := template_of(tokenizer):
            fields |= template.tokens
            (folder / CHAT_TEMPLATE).write_text(template.source, encoding="utf-8")
        (folder / TOKENIZER_CONFIG).write_text(json.dumps(fields, indent=2) + "\n")
        write_pooling(folder, self.pooling())


class _TensorSource(NamedTuple):
    """The stored tensor of one of Hugging Face's tensors, and the part of it.

    Args:
        stored: the stored name.
        expert: the index among matrices that are stored as one; the whole tensor if absent.
    """

    stored: str
    expert: int | None = None


class GgufTensors:
    """The tensors of a GGUF file.

    Args:
        path: the file.
        header: the file's header.
        config: the same file's configuration.

    Raises:
        BadCheckpoint: naming every tensor that isn't known.
    """

    def __init__(self, path: Path, header: Header, config: dict[str, Any]) -> None:
        self.path = path
        self.readable = [kind.name for kind in gguf.GGMLQuantizationType if _is_readable(kind)]
        self._places = header.places
        self._architecture = architecture_of(path, header.metadata)
        self._config = config
        self._sources: dict[str, _TensorSource] = {}
        problems = []
        experts = config.get(self._architecture.experts or "")
        names = _names(self._architecture)
        for stored, place in header.places.items():
            if stored in (FACTORS, *LONGROPE):  # the configuration says the same
                continue
            stem, _, end = stored.rpartition(".")
            layer = re.match(r"blk\.(\d{1,9})\.", stem)
            ours = names.get(re.sub(r"^blk\.\d+\.", "blk.0.", stem))
            if ours is None or end not in ("weight", "bias"):
                problems.append(f"tensor {quoted(stored)} {place.shape} isn't known here")
                continue
            name = f"{ours}.{end}".replace(".0.", f".{layer[1]}." if layer else "", 1)
            if ".experts." not in name:
                self._sources[name] = _TensorSource(stored)
            elif place.shape[0] != experts:
                problems.append(f"tensor {quoted(stored)} {place.shape} must begin with the number of experts")
            else:
                for i in range(place.shape[0]):
                    self._sources[name.replace(".experts.", f".experts.{i}.")] = _TensorSource(stored, i)
        raise_problems(path, problems)

    def names(self) -> Collection[str]:
        """Return Hugging Face's names of all tensors."""
        return self._sources.keys()

    def shape(self, name: str) -> list[int]:
        """Return a tensor's shape."""
        stored, expert = self._sources[name]
        shape = self._places[stored].shape
        if self._is_transposed(name):
            return shape[::-1]
        return shape if expert is None else shape[1:]

    def kind(self, name: str) -> str:
        """Return the storage type of a tensor's entries."""
        return self._places[self._sources[name].stored].kind.name

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Read a tensor into the host's memory, dequantised and in Hugging Face's layout."""
        stored, expert = self._sources[name]
        place = self._places[stored]
        shape = place.shape if expert is None else place.shape[1:]
        size = place.size if expert is None else place.size // place.shape[0]
        added = float(self._architecture.layout is Layout.SHIFTED and name.endswith("norm.weight"))
        tensor = _dequantised(self.path, place.start + (expert or 0) * size, size, place.kind, shape, dtype, added)
        part, heads = name.split(".")[-2], self._config["num_attention_heads"]
        match self._architecture.layout:
            case Layout.ALTERNATING if part in ("q_proj", "k_proj"):
                return _halves_apart(tensor, heads if part == "q_proj" else self._config["num_key_value_heads"])
            case Layout.TRANSPOSED if self._is_transposed(name):
                return tensor.T
            case Layout.APART if part == "query_key_value":
                return tensor.reshape(3, heads, -1, *tensor.shape[1:]).swapaxes(0, 1).reshape(tensor.shape)
        return tensor

    def _is_transposed(self, name: str) -> bool:
        """Return whether a tensor is a matrix of a layer that is stored transposed."""
        place = self._places[self._sources[name].stored]
        return self._architecture.layout is Layout.TRANSPOSED and ".h." in name and len(place.shape) == 2


def _names(architecture: Architecture) -> dict[str, str]:
    """Return Hugging Face's names of the first layer's and all other tensors by stored name, without suffixes."""
    stored = gguf.get_tensor_name_map(architecture.kind, 1)
    return {name: ours for ours in architecture.names if (name := stored.get_name(ours)) is not None}


def _is_readable(kind: gguf.GGMLQuantizationType) -> bool:
    try:
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _dequantised(
    path: Path, start: int, size: int, kind: gguf.GGMLQuantizationType, shape: list[int], dtype: np.dtype, added: float
) -> np.ndarray:
    """Dequantise a tensor a few rows at a time, so that its bytes and float32 values are never in memory whole."""
    # A number that was added to the entries is subtracted before they are rounded to the dtype.
    exact = np.promote_types(np.float32, dtype)
    tensor = np.empty(shape, dtype)
    rows = tensor.reshape(-1, shape[-1])
    at_once = max(1, CHUNK // shape[-1])
    with path.open("rb") as file:
        file.seek(start)
        for i in range(0, len(rows), at_once):
            part = rows[i : i + at_once]
            stored = np.fromfile(file, np.uint8, size // len(rows) * len(part)).reshape(len(part), -1)
            part[...] = gguf.dequantize(stored, kind).astype(exact, copy=False) - exact.type(added)
    return tensor


def _halves_apart(tensor: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows as Hugging Face rotates them: each head's even rows first, then the odd ones."""
    return tensor.reshape(heads, -1, 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape)
