"""Fields of docs/how-to/gpu-and-tpu.md: the devices on which the kept results were measured."""

import json
from typing import Any

from experiments.kept_results import FOLDERS, ROOT
from experiments.markdown import Fields


def environments() -> list[dict[str, Any]]:
    """Return the environment of every kept result that has one."""
    files = (path for folder in FOLDERS for path in sorted((ROOT / folder / "results").glob("*.json")))
    contents = (json.loads(path.read_text(encoding="utf-8")) for path in files)
    return [content["environment"] for content in contents if isinstance(content, dict) and "environment" in content]


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: none of its own.
    """
    found = environments()
    return {
        "results": str(len(found)),
        "backends": ", ".join(sorted({environment["backend"].upper() for environment in found})),
        "processors": ", ".join(sorted({environment["processor"] for environment in found})),
    }
