"""Files of arrays that state what they belong to, with a digest of this statement and of the arrays."""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from duat_jax.errors import DuatError

FIELD = "duat"
"""The field of a file's header with its head and the digest, as JSON; of several fields safetensors keeps no order."""


def digest_of(head: Any, arrays: Mapping[str, np.ndarray] | None = None) -> str:
    """Return a hash of plain data and of arrays, by their names, dtypes, shapes and numbers.

    Example:
        >>> digest_of({"part": 0}) == digest_of({"part": 1})
        False
    """
    plain = json.loads(json.dumps(head))  # as it is read again, with strings for keys
    digest = sha256(json.dumps(plain, sort_keys=True).encode())
    for name, array in sorted((arrays or {}).items()):
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def seal(arrays: Mapping[str, np.ndarray], head: Any) -> bytes:
    """Return the content of a file of safetensors with its head and a digest of both."""
    sealed = {"digest": digest_of(head, arrays), "head": head}
    # What is written is memory as it lies there, also that of a transposed array.
    in_rows = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(in_rows, {FIELD: json.dumps(sealed, ensure_ascii=False)})


def unseal(content: bytes) -> tuple[Any, dict[str, np.ndarray], bool]:
    """Return a file's head, its arrays, and whether it has a digest, which then is right."""
    try:
        length = int.from_bytes(content[:8], "little")
        header, arrays = json.loads(content[8 : 8 + length]), dict(sorted(_arrays(content).items()))
        if FIELD not in header.get("__metadata__", {}):
            raise DuatError("has no digest, as a file of an older version or of another program")
        sealed = json.loads(header["__metadata__"][FIELD])
        digest = sealed.get("digest")
        head = sealed if digest is None else sealed["head"]
    except DuatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, SafetensorError) as error:
        raise DuatError(f"is damaged ({type(error).__name__})") from None
    if digest is not None and digest != digest_of(head, arrays):
        raise DuatError("is damaged (its digest isn't that of its content)")
    return head, arrays, digest is not None


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a file, of half precisions too, which safetensors' reader for NumPy doesn't know."""
    return {
        name: np.frombuffer(entry["data"], _dtype(entry["dtype"])).reshape(entry["shape"])
        for name, entry in deserialize(content)
    }


KINDS = {"BF": "bfloat", "F": "float", "I": "int", "U": "uint", "C": "complex"}
"""The kinds of numbers in safetensors, and in NumPy."""


def _dtype(stored: str) -> np.dtype:
    match = re.fullmatch(r"([A-Z]+)(\d+)", stored)
    return jnp.dtype(bool if match is None else f"{KINDS[match[1]]}{match[2]}")


def unseal_file(file: Path, head: Mapping[str, Any], remedy: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the head and the arrays of a kept file that has to belong to something."""
    try:
        there, arrays, has_digest = unseal(file.read_bytes())
    except OSError as error:
        raise DuatError(f"{file} can't be read ({error.strerror}): {remedy}") from None
    except DuatError as error:
        raise DuatError(f"{file} {error}: {remedy}") from None
    if not has_digest or not isinstance(there, dict):
        raise DuatError(f"{file} has no digest: {remedy}")
    expected = json.loads(json.dumps(head))
    if different := [name for name in expected if there.get(name) != expected[name]]:
        raise DuatError(f"{file} is of another {' and another '.join(different)}: {remedy}")
    return there, arrays
