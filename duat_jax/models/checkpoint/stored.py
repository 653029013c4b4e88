"""What a checkpoint is: a configuration, tensors and a tokenizer, wherever they are stored."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from tokenizers import Tokenizer


@runtime_checkable
class Stored(Protocol):
    """Tensors in files, under Hugging Face's names, each read on its own.

    Args:
        path: the file, or what names the files, for messages.
    """

    path: Path

    @property
    def readable(self) -> Collection[str]:
        """The kinds of entries that can be read."""

    def names(self) -> Collection[str]:
        """Return the names of all tensors."""

    def shape(self, name: str) -> list[int]:
        """Return a tensor's shape; nothing of it is read.

        Args:
            name: its name.
        """

    def kind(self, name: str) -> str:
        """Return what a tensor's entries are stored as, for example `"BF16"` or `"Q4_1"`.

        Args:
            name: its name.
        """

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Return a tensor in the host's memory.

        Args:
            name: its name.
            dtype: what its entries become.
        """


@runtime_checkable
class Checkpoint(Protocol):
    """A place with a configuration, tensors and a tokenizer.

    Args:
        settings_path: the file that holds the configuration, for messages.
    """

    settings_path: Path

    def settings(self) -> Any:
        """Return the configuration in the words of a Hugging Face `config.json`."""

    def vocabulary_size(self) -> int | None:
        """Return the number of tokens that the model embeds; `None` where there is no model, or it doesn't say."""

    def tensors(self) -> Stored:
        """Return the tensors."""

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, without truncation or padding."""
