"""Small runs of studies that are stated as one `STUDY`."""

from dataclasses import replace

import jax

from experiments import run
from experiments.findings import tables_of


def run_small(study, folder, monkeypatch):
    """Run a study in this process with results in a folder, twice, and return its frames."""
    monkeypatch.setattr(run, "FOLDER", folder)
    with jax.numpy_dtype_promotion("standard"):
        run.run("small", replace(study, parallel=False))
        first = run.path("small").read_bytes()
        run.run("small", replace(study, parallel=False))
    assert run.path("small").read_bytes() == first, "what is kept isn't measured again"
    assert not list((folder / "work").iterdir())
    return run.frames_of("small")


def filled_tables(study, frames):
    """Return the tables of a study by heading, each with at least one row."""
    tables = tables_of(study, frames)
    assert all(sum(line.startswith("|") for line in lines) > 2 for lines in tables.values())
    return tables
