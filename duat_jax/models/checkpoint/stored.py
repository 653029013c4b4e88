"""Protocols of stored tensors and of checkpoints: configuration, tensors and tokenizer."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from tokenizers import Tokenizer

from duat_jax.models.pooling import Pooling


@runtime_checkable
class StoredTensors(Protocol):
    """Tensors in files, under Hugging Face's names, each read separately.

    Args:
        path: the file, or the index of files, for messages.
    """

    path: Path

    @property
    def readable(self) -> Collection[str]:
        """The storage types that can be read."""

    def names(self) -> Collection[str]:
        """Return the names of all tensors."""

    def shape(self, name: str) -> list[int]:
        """Return a tensor's shape, without reading the tensor."""

    def kind(self, name: str) -> str:
        """Return the storage type of a tensor's entries, for example `"BF16"` or `"Q4_1"`."""

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Read a tensor into the host's memory."""


@runtime_checkable
class Checkpoint(Protocol):
    """A configuration, tensors and a tokenizer, in any format.

    Args:
        settings_path: the file that holds the configuration, for messages.
    """

    settings_path: Path

    def settings(self) -> Any:
        """Return the configuration as fields of a Hugging Face `config.json`."""

    def vocabulary_size(self) -> int | None:
        """Return the number of tokens that the model embeds, or `None` if unknown."""

    def tensors(self) -> StoredTensors:
        """Return the tensors."""

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, without truncation or padding."""

    def pooling(self) -> Pooling:
        """Return how an encoder's hidden states become the vector of a text; the mean where nothing is stated."""

    def copy_rest(self, folder: Path) -> None:
        """Write everything but the configuration and the weights into a folder: tokenizer, templates, generation."""
