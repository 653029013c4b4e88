"""Run a study: what isn't measured yet is measured, piece by piece, and a run that was stopped goes on."""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import pandas as pd
from rich.progress import Progress

from duat_jax.evaluation.journal import Journal
from experiments.environment import environment
from experiments.kept_results import ROOT
from experiments.significant import significant
from experiments.study import Piece, Row, Study
from experiments.table import Frames

FOLDER = ROOT / "experiments" / "results"


def path(name: str) -> Path:
    """Return the file of a study's kept results."""
    return FOLDER / f"{name}.json"


def frames_of(name: str) -> Frames:
    """Return the kept measurements of a study."""
    kept = json.loads(path(name).read_text(encoding="utf-8"))
    return {frame: pd.DataFrame(columns) for frame, columns in kept["frames"].items()}


def store(name: str, settings: Any, frames: dict[str, list[Row]], machine: dict[str, Any]) -> None:
    """Store the measurements of a study with the machine that they are from."""
    columns = {frame: {key: [row.get(key) for row in rows] for key in _keys(rows)} for frame, rows in frames.items()}
    kept = {"environment": machine, "settings": settings, "frames": columns}
    path(name).write_text(json.dumps(kept, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _keys(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _title(piece: Piece) -> str:
    return ", ".join([piece.frame, *(f"{key} {value}" for key, value in piece.keys.items())])


def _computed(piece: Piece) -> list[Row]:
    """Compute a piece's rows, as plain data with the piece's keys."""
    rows = piece.compute()
    jax.clear_caches()  # the programs of many networks don't fit into one process
    plain = significant([rows] if isinstance(rows, dict) else rows)
    return [{**piece.keys, **row} for row in plain]


def _kept(name: str, settings: Any) -> dict[str, list[Row]]:
    """Return the kept rows of every frame, or none if they are of other settings."""
    if not path(name).exists():
        return {}
    kept = json.loads(path(name).read_text(encoding="utf-8"))
    if kept.get("settings") != settings:
        return {}
    return {
        frame: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        for frame, columns in kept["frames"].items()
    }


def _of_piece(kept: dict[str, list[Row]], piece: Piece) -> list[Row]:
    return [row for row in kept.get(piece.frame, []) if all(row.get(key) == value for key, value in piece.keys.items())]


def _on_one_core() -> None:
    """Set up a process in which one core trains networks that are too small for more, or for a GPU."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    jax.config.update("jax_platforms", "cpu")


def _measured(study: Study, journal: Journal, kept: dict[str, list[Row]], pieces: Sequence[Piece]) -> list[list[Row]]:
    """Return the rows of pieces: the kept ones, those of the journal, or what is computed now."""
    known = [_of_piece(kept, piece) for piece in pieces]
    missing = [i for i, rows in enumerate(known) if not rows and _title(pieces[i]) not in journal]
    if study.parallel and len(missing) > 1:
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _on_one_core) as pool:
            futures = {i: pool.submit(_computed, pieces[i]) for i in missing}
            for i, future in futures.items():
                known[i] = journal.once(_title(pieces[i]), future.result)
    return [
        rows or journal.once(_title(piece), partial(_computed, piece))
        for piece, rows in zip(pieces, known, strict=True)
    ]


def run(name: str, study: Study) -> None:
    """Measure what isn't kept yet, and store the results."""
    settings = json.loads(json.dumps(dict(study.settings)))
    kept = _kept(name, settings)
    (FOLDER / "work").mkdir(parents=True, exist_ok=True)
    unfinished = FOLDER / "work" / f"{name}.jsonl"
    journal = Journal(unfinished, settings)
    frames: dict[str, list[Row]] = {}
    pieces, rows = study.measure(), None
    with Progress() as progress:
        task = progress.add_task(name, total=None)
        while True:
            try:
                piece = pieces.send(rows)
            except StopIteration:
                break
            together = [piece] if isinstance(piece, Piece) else list(piece)
            measured = _measured(study, journal, kept, together)
            for each, found in zip(together, measured, strict=True):
                frames.setdefault(each.frame, []).extend(found)
                progress.update(task, advance=1, description=_title(each))
            rows = measured[0] if isinstance(piece, Piece) else measured
    store(name, settings, frames, environment())
    unfinished.unlink()
