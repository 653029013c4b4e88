"""One small model of every family in every form that it is stored in, read by this package and by another tool.

`python -m tests.parity.round_trips` compares all of them, keeps the cells in `experiments/results/round_trips.json` and
fills the page in; `--families llama vit` and `--trips gguf` compare some, and the other cells are kept.
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

from . import hugging_face
from .adapter_trips import adapters
from .cases import Case, make_case
from .comparison import DTYPES, compared, parameters, stored
from .derived_trips import copies, packed
from .families import FAMILIES
from .gguf_trips import gguf_files

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


def keep(families: dict[str, Rows]) -> None:
    """Keep the cells of families, a line each, with the versions of the tools.

    Args:
        families: their cells.
    """
    versions = json.dumps({name: version(name) for name in TOOLS})
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(families[name])}" for name in sorted(families))
    KEPT.write_text(f'{{"versions": {versions}, "families": {{\n{lines}\n}}}}\n', encoding="utf-8")


def main() -> None:
    """Compare families, keep their cells, and fill the page in."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--trips", nargs="*", default=list(TRIPS))
    asked = parser.parse_args()
    families: dict[str, Any] = kept("round_trips").get("families", {})
    jax.config.update("jax_enable_x64", True)
    for family in asked.families:
        families[family] = families.get(family, {}) | rows_of(family, asked.trips)
        print(family, {cell for row in families[family].values() for cell in row.values()}, flush=True)
        keep(families)
    fill_in(PAGE)


if __name__ == "__main__":
    main()
