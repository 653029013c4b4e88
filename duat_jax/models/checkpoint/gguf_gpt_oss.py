"""GPT-OSS's tensors in a GGUF file, in Hugging Face's layout: experts joined, gates and factors alternating."""

from collections.abc import Collection

import numpy as np

from duat_jax.models.checkpoint.stored import StoredTensors

JOINED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
"""Hugging Face's joined tensors, and their parts in a GGUF file."""


class GptOssTensors:
    """The tensors of a GPT-OSS: `W[i, :, n k + j] = W_j[i, k, :]` of the `n` parts of a joined tensor.

    Args:
        stored: the tensors under names of single experts.
        experts: the number of experts.
    """

    def __init__(self, stored: StoredTensors, experts: int) -> None:
        self.path, self.stored = stored.path, stored
        self.readable: Collection[str] = stored.readable
        names = set(stored.names())
        self._joined: dict[str, list[list[str]]] = {}
        for room in {name.partition(".experts.")[0] for name in names if ".experts." in name}:
            for joined, parts in JOINED.items():
                for end, ours in (("weight", joined), ("bias", f"{joined}_bias")):
                    sources = [[f"{room}.experts.{i}.{part}.{end}" for part in parts] for i in range(experts)]
                    if set(sources[0]) <= names and len({tuple(stored.shape(name)) for name in sources[0]}) == 1:
                        self._joined[f"{room}.experts.{ours}"] = sources
        used = {name for sources in self._joined.values() for parts in sources for name in parts}
        self._plain = {name.replace(".sinks.weight", ".sinks"): name for name in names - used}

    def names(self) -> Collection[str]:
        """Return the names of all tensors."""
        return self._joined.keys() | self._plain.keys()

    def shape(self, name: str) -> list[int]:
        """Return a tensor's shape."""
        if name not in self._joined:
            return self.stored.shape(self._plain[name])
        sources = self._joined[name]
        outputs, *inputs = self.stored.shape(sources[0][0])
        return [len(sources), *inputs, outputs * len(sources[0])]

    def kind(self, name: str) -> str:
        """Return the storage type of a tensor's entries; of a joined one, an unreadable type if any."""
        if name not in self._joined:
            return self.stored.kind(self._plain[name])
        kinds = [self.stored.kind(part) for part in self._joined[name][0]]
        return next((kind for kind in kinds if kind not in self.readable), kinds[0])

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Read a tensor into the host's memory, expert by expert."""
        if name not in self._joined:
            return self.stored.read(self._plain[name], dtype)
        tensor = np.empty(self.shape(name), dtype)
        for expert, parts in zip(tensor, self._joined[name], strict=True):
            expert[...] = np.stack([self.stored.read(part, dtype).T for part in parts], -1).reshape(expert.shape)
        return tensor
