"""Limits on the sizes that a checkpoint's files state, checked before anything is parsed."""

from pathlib import Path

from duat_jax.errors import BadCheckpoint

CONFIGURATION = 16 * 2**20
"""Bytes of a `config.json`: one that names 21,841 classes twice has about 1.5 million."""

INDEX = 64 * 2**20
"""Bytes of an index of files: one of 200,000 tensors has about 20 million."""

FILE_HEADER, HEADERS = 16 * 2**20, 64 * 2**20
"""Bytes of a safetensors file's header, and of those of all files together."""

TOKENIZER = 128 * 2**20
"""Bytes of a `tokenizer.json`: those of 262,000 tokens have about 33 million."""

GGUF_KEYS, GGUF_TENSORS, GGUF_STRINGS, GGUF_HEADER = 10_000, 100_000, 4_000_000, 256 * 2**20
"""Keys, tensors and strings of a GGUF file, and bytes before its tensors: published ones have 100, 3,000, 800,000 and
16 million."""


def check_limit(path: Path, unit: str, count: int, most: int) -> None:
    """Raise if a file states a number above a limit.

    Example:
        >>> check_limit(Path("a.gguf"), "keys", 2_000_000, GGUF_KEYS)
        Traceback (most recent call last):
        ...
        duat_jax.errors.BadCheckpoint: a.gguf: it has 2,000,000 keys, far more than any published checkpoint; up to ...
    """
    if count > most:
        raise BadCheckpoint(
            f"{path}: it has {count:,} {unit}, far more than any published checkpoint; up to {most:,} are read, so it"
            " is damaged or no checkpoint"
        )
