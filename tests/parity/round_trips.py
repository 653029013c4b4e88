"""One small model of every family in every form that it is stored in, read by this package and by another tool.

`python -m tests.parity.round_trips` compares all of them, keeps the cells in `experiments/results/round_trips.json` and
fills the page in; `--families llama vit`, `--trips gguf` and `--results Graph` compare some, the other cells are kept.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import torch
import transformers

import duat_jax as duat
from experiments.kept_results import ROOT, kept
from experiments.pages import fill_in
from tests.every_result import MAKERS
from tests.result_trips import trips as result_trips

from . import hugging_face
from .adapter_trips import adapted_parameters, adapters
from .cases import Case, make_case
from .comparison import DTYPES, compared, parameters, stored
from .derived_trips import copies, packed
from .families import FAMILIES
from .gguf_trips import gguf_files
from .trained_trips import trained

PAGE = ROOT / "docs" / "reference" / "checkpoints.md"
KEPT = ROOT / "experiments" / "results" / "round_trips.json"
TOOLS = ("transformers", "torch", "peft", "gguf", "safetensors", "jax")
STORED = ("float32", "bfloat16", "float16")
SHARD = "4KB"
"""The size of a file of several."""

Rows = dict[str, dict[str, str]]
"""Cells by the form of a model and the dtype that it is loaded in."""


def directories(case: Case, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of directories that transformers writes: their form, the dtype of loading, and the comparison.

    Args:
        case: the model.
        folder: an empty folder.
    """
    for sharded in (False, True):
        for kind in STORED:
            base = hugging_face.make(folder / "made", case.architecture, case.settings).to(getattr(torch, kind))
            form = f"directory in {kind}{', sharded' * sharded}"
            base.save_pretrained(folder / form, **({"max_shard_size": SHARD} if sharded else {}))
            assert (len(list((folder / form).glob("*.safetensors"))) > 1) == sharded
            for dtype in DTYPES:
                yield form, dtype, read(folder / form, type(base), dtype, folder / f"{form}, {dtype}")


def read(directory: Path, kind: type[transformers.PreTrainedModel], dtype: str, empty: Path) -> str:
    """Return the cell of a directory: transformers loads it and saves what it has read.

    Args:
        directory: the directory.
        kind: the class of the model in transformers.
        dtype: the dtype that both load it in.
        empty: the folder where transformers saves.
    """
    model = duat.load(directory, dtype=dtype)
    kind.from_pretrained(directory, dtype=getattr(torch, dtype)).save_pretrained(empty)
    return compared(parameters(model), stored(empty, model), stored(directory, model), dtype)


TRIPS: dict[str, Callable[[Case, Path], Iterator[tuple[str, str, str]]]] = {
    "directories": directories,
    "adapters": adapters,
    "gguf": gguf_files,
    "copies": copies,
    "packed": packed,
    "trained": trained,
    "parameters": adapted_parameters,
}
"""The kinds of forms: each yields the form, the dtype of loading and the cell of every comparison."""


def rows_of(family: str, trips: Iterable[str] = TRIPS) -> Rows:
    """Return the cells of a family.

    Args:
        family: its `model_type`.
        trips: the kinds of forms.
    """
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in trips:
            for form, dtype, cell in TRIPS[name](make_case(family, {}), Path(folder) / name):
                rows.setdefault(form, {})[dtype] = cell
    return rows


def rows_of_result(kind: type) -> Rows:
    """Return the cells of a kind of result.

    Args:
        kind: its class.
    """
    rows: Rows = {}
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory() as folder:
            for form, cell in result_trips(kind, dtype, Path(folder)).items():
                rows.setdefault(form, {})[dtype] = cell
    return rows


def keep(families: dict[str, Rows], results: dict[str, Rows]) -> None:
    """Keep the cells of families and of results, a line each, with the versions of the tools.

    Args:
        families: the cells of families.
        results: those of the kinds of results.
    """

    def lines(rows: dict[str, Rows]) -> str:
        return ",\n".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))

    versions = json.dumps({name: version(name) for name in TOOLS})
    KEPT.write_text(
        f'{{"versions": {versions}, "families": {{\n{lines(families)}\n}}, "results": {{\n{lines(results)}\n}}}}\n',
        encoding="utf-8",
    )


def main() -> None:
    """Compare families, keep their cells, and fill the page in."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--trips", nargs="*", default=list(TRIPS))
    parser.add_argument("--results", nargs="*", default=[kind.__name__ for kind in MAKERS])
    asked = parser.parse_args()
    families: dict[str, Any] = kept("round_trips").get("families", {})
    results: dict[str, Any] = kept("round_trips").get("results", {})
    jax.config.update("jax_enable_x64", True)
    for family in asked.families:
        families[family] = families.get(family, {}) | rows_of(family, asked.trips)
        print(family, {cell for row in families[family].values() for cell in row.values()}, flush=True)
        keep(families, results)
    for kind in (kind for kind in MAKERS if kind.__name__ in asked.results):
        results[kind.__name__] = rows_of_result(kind)
        print(kind.__name__, {cell for row in results[kind.__name__].values() for cell in row.values()}, flush=True)
        keep(families, results)
    fill_in(PAGE)


if __name__ == "__main__":
    main()
