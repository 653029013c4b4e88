"""Tables of docs/findings/pruning.md, from the stored results of `experiments.pruning.run`."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from duat_jax.pruning.compensation import COMPENSATIONS
from duat_jax.pruning.layers import METHODS as LAYER_METHODS
from duat_jax.pruning.layers import RANKINGS
from duat_jax.pruning.scores import METHODS
from experiments.markdown import Fields, cells, interval, table

TITLES = {"embedded": "The embedded model"}

Measured = dict[str, Any]
"""Results by the name of the measurement."""


def _over_seeds(pieces: Measured, piece: str) -> list[Any]:
    """Return the results of a measurement for every seed."""
    return [pieces[name] for seed in range(10) if (name := f"seed {seed}, {piece}") in pieces]


def _number(losses: Sequence[float]) -> str:
    if not losses:
        return ""
    return interval(losses)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    kept = [row for row in rows if any(row[1:])]
    return [*table(head, kept), ""] if kept else []


def _seeds(measured: Measured, pieces: Iterable[str]) -> str:
    counts = [count for piece in pieces if (count := len(_over_seeds(measured, piece)))]
    low, high = min(counts, default=0), max(counts, default=0)
    how_many = str(low) if low == high else f"{low} to {high}"
    return f"{how_many} seed{'s' * (high > 1)} of calibration text"


def _neurons(measured: Measured, budget: str, fractions: Sequence[float], methods: Iterable[str]) -> list[str]:
    shares = [f"{fraction:.0%}" for fraction in sorted(fractions)]
    pieces = {
        (method, how): [f"{method}, {how}, {share}, {budget}" for share in shares]
        for how in COMPENSATIONS
        for method in methods
    }
    rows = [
        [f"{method}, {how}", *(_number(_over_seeds(measured, piece)) for piece in of)]
        for (method, how), of in pieces.items()
    ]
    table = _table(["ranked by, in their place", *shares], rows)
    seeds = _seeds(measured, (piece for of in pieces.values() for piece in of))
    return [*table, f"Means with intervals of 95 % by bootstrap over seeds: {seeds}.", ""]


def _ways(measured: Measured, fractions: Sequence[float]) -> list[str]:
    def cell(piece: str) -> str:
        first_seed = _over_seeds(measured, piece)[:1]
        return _number([result["loss"] if isinstance(result, dict) else result for result in first_seed])

    shares, rows = [f"{fraction:.0%}" for fraction in fractions], []
    for method in ("fisher", "contributions"):
        for budget in ("equal", "together"):
            of = [f"{method}, refit, {share}, {budget}" for share in shares]
            rows.append([f"{method}, at once, {budget}", *map(cell, of)])
        rows += [
            [f"{method}, {name}", *(cell(f"{method}, {share}, {name}") for share in shares)]
            for name in ("4 rounds", "4 rounds, together", "measured budget")
        ]
    return [*_table(["refitted, ranked by", *shares], rows), "The first seed alone.", ""]


def _layers(measured: Measured) -> list[str]:
    rows, pieces = [], []
    for how in COMPENSATIONS:
        for method in RANKINGS:
            of = [f"layers, {method}, {count}, {how}" for count in (1, 2, 3)]
            pieces += of
            losses = [[results["loss"] for results in _over_seeds(measured, piece)] for piece in of]
            rows.append([f"{method}, {how}", *map(_number, losses)])
    gone = {
        method: "; ".join(
            ", ".join(map(str, results[0]["layers"]))
            for count in (1, 2, 3)
            if (results := _over_seeds(measured, f"layers, {method}, {count}, none"))
        )
        for method in LAYER_METHODS
    }
    first_seed = ". ".join(
        f"By {method} go, with the first seed, {layers}" for method, layers in gone.items() if layers
    )
    table = _table(["ranked by, in their place", "1 layer", "2 layers", "3 layers"], rows)
    return [*table, f"{_seeds(measured, pieces)}. {first_seed}.", ""]


def _inequality(measured: Measured) -> list[str]:
    rows = []
    for name, sizes in measured.items():
        if name.startswith("inequality, "):
            ratio = sizes["change"] / sizes["terms"]
            numbers = [f"{sizes[key]:.3f}" for key in ("terms", "change", "moved")]
            rows.append([name.removeprefix("inequality, "), *numbers, f"{ratio:.2f}", f"{sizes['within']:.0%}"])
    return _table(["removed", "sum of terms", "true error", "what moved", "true / sum", "within"], rows)


def _cost(measured: Measured) -> list[str]:
    forward = measured.get("seconds of a forward pass", {})
    rows = [
        [name, f"{seconds['parameters']:,}", f"{seconds['clock']:.3f} s", f"{seconds['cores']:.3f} s"]
        for name, seconds in forward.items()
    ]
    rows += [
        [name.removeprefix("seconds of "), " ", f"{seconds['clock']:.0f} s", f"{seconds['cores']:.0f} s"]
        for name, seconds in measured.items()
        if name.startswith("seconds of calibration")
    ]
    return _table(["removed; a forward pass of 8 pieces", "parameters", "by the clock", "of all cores together"], rows)


def numbers(results: dict[str, Measured], fractions: Sequence[float]) -> Fields:
    """Return every cell of a model's tables, and the added loss of every pruned model."""
    fields: Fields = {}
    for model, measured in results.items():
        fields |= {f"{model} / {name}": cell for name, cell in cells(tables({model: measured}, fractions)).items()}
        for piece in dict.fromkeys(name.partition(", ")[2] for name in measured if name.startswith("seed ")):
            losses = [result["loss"] if isinstance(result, dict) else result for result in _over_seeds(measured, piece)]
            added = np.asarray(losses) - measured["dense"]
            fields[f"{model} / {piece} / added loss"] = f"{np.mean(added):.3f}"
            fields[f"{model} / {piece} / added loss, interval"] = interval(added)
    return fields


def tables(results: dict[str, Measured], fractions: Sequence[float]) -> str:
    """Return the tables."""
    lines: list[str] = []
    for model, measured in results.items():
        lines += [f"## {TITLES.get(model, model)}", "", f"The whole model's loss: {measured['dense']:.4f}.", ""]
        parts = {
            "Every layer loses the same share": _neurons(measured, "equal", fractions, METHODS),
            "The neurons of all layers ranked as one list": _neurons(measured, "together", fractions, METHODS),
            "In rounds, and by a measured budget": _ways(measured, fractions[:2]),
            "Whole layers": _layers(measured),
            "The inequality": _inequality(measured),
            "What it costs and what it saves": _cost(measured),
        }
        for title, part in parts.items():
            if any(line.startswith("|") for line in part):
                lines += [f"### {title}", "", *part]
    return "\n".join(lines)
