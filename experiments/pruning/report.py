"""The tables of docs/pruning.md, made of what `experiments.pruning.run` has measured so far."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from duat_jax.pruning.compensation import COMPENSATIONS
from duat_jax.pruning.layers import METHODS as LAYER_METHODS
from duat_jax.pruning.layers import RANKINGS
from duat_jax.pruning.scores import METHODS
from experiments.pages import Fields, cells, interval

TITLES = {"embedded": "The embedded model"}

Found = dict[str, Any]
"""What was found, by the name of its piece."""


def _over_seeds(found: Found, piece: str) -> list[Any]:
    """Return a piece of every seed that was measured."""
    return [found[name] for seed in range(10) if (name := f"seed {seed}, {piece}") in found]


def _number(losses: Sequence[float]) -> str:
    if not losses:
        return ""
    return interval(losses)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    kept = [row for row in rows if any(row[1:])]
    lines = [f"| {' | '.join(row)} |" for row in kept]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines, ""] if lines else []


def _seeds(found: Found, pieces: Iterable[str]) -> str:
    counts = [count for piece in pieces if (count := len(_over_seeds(found, piece)))]
    low, high = min(counts, default=0), max(counts, default=0)
    how_many = str(low) if low == high else f"{low} to {high}"
    return f"{how_many} seed{'s' * (high > 1)} of calibration text"


def _neurons(found: Found, budget: str, fractions: Sequence[float], methods: Iterable[str]) -> list[str]:
    shares = [f"{fraction:.0%}" for fraction in sorted(fractions)]
    pieces = {
        (method, how): [f"{method}, {how}, {share}, {budget}" for share in shares]
        for how in COMPENSATIONS
        for method in methods
    }
    rows = [
        [f"{method}, {how}", *(_number(_over_seeds(found, piece)) for piece in of)]
        for (method, how), of in pieces.items()
    ]
    table = _table(["ranked by, in their place", *shares], rows)
    said = _seeds(found, (piece for of in pieces.values() for piece in of))
    return [*table, f"Means with intervals of 95 % by bootstrap over seeds: {said}.", ""]


def _ways(found: Found, fractions: Sequence[float]) -> list[str]:
    def cell(piece: str) -> str:
        one = _over_seeds(found, piece)[:1]
        return _number([each["loss"] if isinstance(each, dict) else each for each in one])

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


def _layers(found: Found) -> list[str]:
    rows, pieces = [], []
    for how in COMPENSATIONS:
        for method in RANKINGS:
            of = [f"layers, {method}, {count}, {how}" for count in (1, 2, 3)]
            pieces += of
            losses = [[one["loss"] for one in _over_seeds(found, piece)] for piece in of]
            rows.append([f"{method}, {how}", *map(_number, losses)])
    gone = {
        method: "; ".join(
            ", ".join(map(str, one[0]["layers"]))
            for count in (1, 2, 3)
            if (one := _over_seeds(found, f"layers, {method}, {count}, none"))
        )
        for method in LAYER_METHODS
    }
    said = ". ".join(f"By {method} go, with the first seed, {layers}" for method, layers in gone.items() if layers)
    table = _table(["ranked by, in their place", "1 layer", "2 layers", "3 layers"], rows)
    return [*table, f"{_seeds(found, pieces)}. {said}.", ""]


def _inequality(found: Found) -> list[str]:
    rows = []
    for name, one in found.items():
        if name.startswith("inequality, "):
            ratio = one["change"] / one["terms"]
            numbers = [f"{one[key]:.3f}" for key in ("terms", "change", "moved")]
            rows.append([name.removeprefix("inequality, "), *numbers, f"{ratio:.2f}", f"{one['within']:.0%}"])
    return _table(["removed", "sum of terms", "true error", "what moved", "true / sum", "within"], rows)


def _cost(found: Found) -> list[str]:
    forward = found.get("seconds of a forward pass", {})
    rows = [
        [name, f"{one['parameters']:,}", f"{one['clock']:.3f} s", f"{one['cores']:.3f} s"]
        for name, one in forward.items()
    ]
    rows += [
        [name.removeprefix("seconds of "), " ", f"{one['clock']:.0f} s", f"{one['cores']:.0f} s"]
        for name, one in found.items()
        if name.startswith("seconds of calibration")
    ]
    return _table(["removed; a forward pass of 8 pieces", "parameters", "by the clock", "of all cores together"], rows)


def numbers(results: dict[str, Found], fractions: Sequence[float]) -> Fields:
    """Return every cell of a model's tables, and of every way to prune it how much more the loss is than before.

    Args:
        results: what was found about each model.
        fractions: which shares of neurons were removed.
    """
    fields: Fields = {}
    for model, found in results.items():
        fields |= {f"{model} / {name}": cell for name, cell in cells(tables({model: found}, fractions)).items()}
        for piece in dict.fromkeys(name.partition(", ")[2] for name in found if name.startswith("seed ")):
            losses = [each["loss"] if isinstance(each, dict) else each for each in _over_seeds(found, piece)]
            fields[f"{model} / {piece} / added loss"] = f"{np.mean(losses) - found['dense']:.3f}"
    return fields


def tables(results: dict[str, Found], fractions: Sequence[float]) -> str:
    """Return the tables.

    Args:
        results: what was found about each model.
        fractions: which shares of neurons were removed.
    """
    lines: list[str] = []
    for model, found in results.items():
        lines += [f"## {TITLES.get(model, model)}", "", f"The whole model's loss: {found['dense']:.4f}.", ""]
        parts = {
            "Every layer loses the same share": _neurons(found, "equal", fractions, METHODS),
            "The neurons of all layers ranked as one list": _neurons(found, "together", fractions, METHODS),
            "In rounds, and by a measured budget": _ways(found, fractions[:2]),
            "Whole layers": _layers(found),
            "The inequality": _inequality(found),
            "What it costs and what it saves": _cost(found),
        }
        for title, part in parts.items():
            if any(line.startswith("|") for line in part):
                lines += [f"### {title}", "", *part]
    return "\n".join(lines)
