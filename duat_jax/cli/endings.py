"""The endings of the files that options write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duat_jax.errors import InvalidInput

REQUIRED = {
    "--plot": (".png", ".pdf", ".svg"),
    "--html": (".html", ".htm"),
    "--viewer": (".json",),
    "--graphml": (".graphml",),
}
"""The endings of which a file of each option has one."""

OWN = {
    "--json": (".json", ".txt"),
    "--csv": (".csv", ".txt"),
    "--save": (".safetensors",),
    "--work": (".work", ".json", ".jsonl", ".safetensors", ".txt"),
}
"""The endings that a file of each option may have, the usual one first; any other is free unless it is in `TAKEN`."""

WRITTEN = {option: endings[:1] for option, endings in OWN.items()} | REQUIRED
"""The endings for which each option is the one to take."""

_OTHER = (
    *(".bmp", ".gif", ".jpeg", ".jpg", ".tif", ".tiff", ".webp"),
    *(".gguf", ".h5", ".hdf5", ".npy", ".npz", ".onnx", ".parquet", ".pickle", ".pkl", ".pt", ".pth", ".tsv", ".xlsx"),
    *(".ipynb", ".md", ".py", ".tex", ".toml", ".xml", ".yaml", ".yml", ".gz", ".tar", ".zip"),
)
TAKEN = frozenset(_OTHER).union(*REQUIRED.values(), *OWN.values())
"""Endings that belong to a format."""


def check_endings(files: Mapping[str, Any]) -> None:
    """Raise unless every file that a command writes has an ending of its format, or one that belongs to no format."""
    problems = []
    for option in filter(files.get, WRITTEN):
        ending = Path(file := files[option]).suffix.lower()
        if ending not in REQUIRED.get(option, (ending,)):
            *most, last = REQUIRED[option]
            allowed = f"{', '.join(most)} or {last}" if most else last
            problems.append(f"{option} {file} must end in {allowed}")
        elif ending in TAKEN.difference(OWN.get(option, TAKEN)):
            writer = next((name for name in files if ending in WRITTEN.get(name, ())), None)
            remedy = f"give an ending such as {OWN[option][0]}"
            if writer is not None:
                remedy = f"take {writer} for one, or another ending"
            problems.append(f"{option} {file} doesn't write a {ending} file: {remedy}")
    if problems:
        raise InvalidInput("; ".join(problems))
