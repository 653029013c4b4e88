"""Tensors in MXFP4, as in GPT-OSS: blocks of 32 numbers of 4 bits, with a scale for each block."""

from collections.abc import Collection

import ml_dtypes
import numpy as np

from duat_jax.models.checkpoint.stored import StoredTensors

BLOCKS, SCALES = "_blocks", "_scales"
"""Suffixes of the two stored tensors of a packed one."""

KIND, BLOCK = "MXFP4", 32
VALUES = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
"""The numbers that 4 bits encode."""


class Mxfp4:
    """Tensors, some of them stored in MXFP4: `W[i, 32 b + k, j] = 2^(scales[i, j, b] − 127) v(blocks[i, j, b, k])`.

    A byte of `blocks` is two numbers `v`, the first one in its lower half.

    Args:
        stored: the tensors as they are in the files.

    Source: Rouhani et al., "OCP Microscaling Formats (MX) Specification", 2023.
    """

    def __init__(self, stored: StoredTensors) -> None:
        self.path, self.stored = stored.path, stored
        ends = [name.removesuffix(BLOCKS) for name in stored.names() if name.endswith(BLOCKS)]
        self.packed = {name for name in ends if self._is_packed(name)}

    def _is_packed(self, name: str) -> bool:
        parts = (name + BLOCKS, name + SCALES)
        if not set(parts) <= set(self.stored.names()) or {self.stored.kind(part) for part in parts} != {"U8"}:
            return False
        blocks, scales = (self.stored.shape(part) for part in parts)
        return len(scales) == 3 and blocks == [*scales, BLOCK // 2]

    @property
    def readable(self) -> Collection[str]:
        """The storage types that can be read."""
        return [*self.stored.readable, KIND]

    def names(self) -> Collection[str]:
        """Return the names of all tensors."""
        parts = {name + end for name in self.packed for end in (BLOCKS, SCALES)}
        return (set(self.stored.names()) - parts) | self.packed

    def shape(self, name: str) -> list[int]:
        """Return a tensor's shape."""
        if name not in self.packed:
            return self.stored.shape(name)
        experts, columns, blocks = self.stored.shape(name + SCALES)
        return [experts, BLOCK * blocks, columns]

    def kind(self, name: str) -> str:
        """Return the storage type of a tensor's entries."""
        return KIND if name in self.packed else self.stored.kind(name)

    def read(self, name: str, dtype: np.dtype) -> np.ndarray:
        """Read a tensor into the host's memory, unpacked expert by expert."""
        if name not in self.packed:
            return self.stored.read(name, dtype)
        blocks, scales = (self.stored.read(name + end, np.dtype(np.uint8)) for end in (BLOCKS, SCALES))
        factors = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
        tensor = np.empty(self.shape(name), dtype)
        for expert, block, factor in zip(tensor, blocks, factors, strict=True):
            pairs = np.stack([VALUES[block & 15], VALUES[block >> 4]], -1)
            expert[...] = (pairs.reshape(*factor.shape, BLOCK) * factor[..., None]).reshape(len(factor), -1).T
        return tensor
