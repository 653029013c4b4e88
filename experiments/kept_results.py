"""Kept results of studies and benchmarks, from which pages are written."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDERS = ("experiments", "benchmarks")
"""The folders of studies and benchmarks, each with its kept results."""


def kept(name: str) -> dict[str, Any]:
    """Return the stored results of a study or benchmark, or nothing for one that reads those of others."""
    for folder in FOLDERS:
        path = ROOT / folder / "results" / f"{name}.json"
        if path.exists():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
    return {}
