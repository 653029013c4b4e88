"""Tensors that two tools have read of the same file, and the words for their comparison in the table of round trips."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import safe_open

import duat_jax as duat
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.checkpoint.tensors import Tensors
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.registry import family_of

DTYPES = ("float32", "bfloat16", "float16", "float64")
"""The dtypes in which a model is loaded."""

Arrays = Mapping[str, np.ndarray]


def parameters(model: duat.models.Transformer) -> dict[str, np.ndarray]:
    """Return a model's parameters in the layout of its checkpoint, by the names there without prefix.

    Args:
        model: the model.
    """
    tensors: dict[str, np.ndarray] = {}
    for entry in family_of(model.config).tensor_map(model.config):
        values = [np.asarray(parameter_at(model, path)[...]) for path in entry.parameters]
        tensors |= dict(zip(entry.names, entry.transform.pack(values), strict=True))
    return tensors


def in_files(directory: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a directory's files by their names there.

    Args:
        directory: the directory.
    """
    tensors: dict[str, np.ndarray] = {}
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, framework="np") as opened:
            tensors |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    return tensors


def stored(directory: Path, model: duat.models.Transformer) -> dict[str, np.ndarray]:
    """Return the tensors of a directory as the library of safetensors reads them, by their names without prefix.

    Args:
        directory: the directory.
        model: a model of the same family; tensors that aren't its own are left out.
    """
    tensors = in_files(directory)
    family = family_of(model.config)
    layout = {"prefix": family.prefix, "ignored": "(?!)", "heads": family.heads, "older": family.older}
    names = Tensors(open_checkpoint(directory).tensors(), np.float32, **layout).names
    return {name: tensors[names[name]] for name in parameters(model) if name in names}


def compared(ours: Arrays, theirs: Arrays, original: Arrays, dtype: str) -> str:
    """Return a cell: whether both tools have read the same bits, and whether these are the numbers of the file.

    Args:
        ours: our parameters.
        theirs: those of the other tool; where it keeps more digits, they are rounded once.
        original: the numbers of the file.
        dtype: the dtype that was asked for.
    """
    kind, wider = np.dtype(dtype), []
    for name in sorted({*ours, *theirs, *original}):
        if not all(name in tensors for tensors in (ours, theirs, original)):
            return f"differs: {name} isn't in all of them"
        if ours[name].dtype != kind:
            return f"differs: {name} is read in {ours[name].dtype}"
        if theirs[name].dtype != kind:
            wider.append(name)
        if not same_bits(ours[name], theirs[name].astype(kind)):
            return f"differs: {name} isn't what the other tool reads"
        if not same_bits(ours[name], original[name].astype(kind)):
            return f"differs: {name} isn't the file's tensor, rounded once"
    kept = f" ({len(wider)} tensors in {theirs[wider[0]].dtype} there)" if wider else ""
    lossless = all(same_bits(ours[name].astype(np.float64), original[name].astype(np.float64)) for name in ours)
    return ("equal" if lossless else f"equal to rounding of {dtype}") + kept


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays have the same bits.

    Args:
        a: an array.
        b: another one.
    """
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
