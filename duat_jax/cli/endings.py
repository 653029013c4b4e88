"""The endings of the files that options write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duat_jax.errors import InvalidInput

ENDINGS = {
    "--plot": (".png", ".pdf", ".svg"),
    "--html": (".html", ".htm"),
    "--viewer": (".json",),
    "--graphml": (".graphml",),
    "--parquet": (".parquet",),
    "--json": (".json", ".txt", ""),
    "--csv": (".csv", ".txt", ""),
    "--save": (".safetensors", ""),
    "--work": (".work", ".json", ".jsonl", ".safetensors", ".txt", ""),
}
"""The endings of which a file of each option has one, the usual one first; the last may be none."""


def check_endings(files: Mapping[str, Any]) -> None:
    """Raise unless every file that a command writes has an ending of its format."""
    problems = []
    for option in filter(files.get, ENDINGS):
        if (ending := _ending(files[option])) not in ENDINGS[option]:
            *most, last = (each or "have no ending" for each in ENDINGS[option])
            allowed = f"{', '.join(most)} or {last}" if most else last
            writer = next((name for name in files if ending in ENDINGS.get(name, ())[:1]), None)
            hint = f"; {writer} writes {ending}" if writer else ""
            problems.append(f"{option} {files[option]} must end in {allowed}{hint}")
    if problems:
        raise InvalidInput("; ".join(problems))


def _ending(file: str | Path) -> str:
    """Return the ending of a file's name; what begins with a digit is none, as in `qwen2-1.5b`."""
    suffix = Path(file).suffix.lower()
    return suffix if suffix[1:2].isalpha() else ""
