"""The journal of a study, from which an interrupted run goes on, and its kept results, from which pages are written."""

import json
from pathlib import Path
from typing import Any

from duat_jax.evaluation.journal import Journal
from experiments.environment import environment

ROOT = Path(__file__).parent.parent
FOLDER = Path("experiments/results")
FOLDERS = ("experiments", "benchmarks")
"""The folders of studies, each with its kept results."""


def journal_of(study: str, settings: dict[str, Any]) -> Journal:
    """Return the journal of a study."""
    (FOLDER / "work").mkdir(parents=True, exist_ok=True)
    return Journal(FOLDER / "work" / f"{study}.jsonl", settings)


def store(study: str, results: dict[str, Any]) -> None:
    """Store the results of a study with the machine that they are from."""
    text = json.dumps({"environment": environment(), **results}, allow_nan=False)
    (FOLDER / f"{study}.json").write_text(text + "\n", encoding="utf-8")


def kept(study: str) -> dict[str, Any]:
    """Return the stored results of a study, or nothing for a study that reads those of others."""
    for folder in FOLDERS:
        path = ROOT / folder / "results" / f"{study}.json"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
    return {}
