"""Tables of docs/findings/pruning.md on whole layers, from the stored results of `experiments.pruning.layers`."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from duat_jax.evaluation.statistics import agreement
from experiments.markdown import Fields, cells, interval, table

TITLES = {"embedded": "the embedded model"}
RANDOM = "random"
FIRST_KEPT = ", the first kept"

Measured = dict[str, Any]
"""The measurements on one model."""


def quarter(layers: int) -> int:
    """Return a quarter of a number of layers: 2 of 6, 8 of 30."""
    return round(layers / 4)


def _added(measured: Measured, kind: str, ranking: str, count: int, how: str = "none") -> list[float]:
    """Return the added losses of a ranking, of each draw; none if it isn't measured."""
    of = measured["kinds"][kind]["rankings"].get(ranking, {"removed": []})
    return [entry["added"][how] for entry in of["removed"] if entry["count"] == count and how in entry["added"]]


def _cell(numbers: list[float], digits: int = 2) -> str:
    return interval(numbers, digits) if numbers else ""


def _columns(results: dict[str, Measured]) -> Iterable[tuple[str, Measured, str, int]]:
    """Yield a title, a model's measurements, what is removed, and a quarter of its number."""
    for model, measured in results.items():
        for kind in measured["kinds"]:
            layers = measured["layers"]
            yield f"{model}: {quarter(layers)} of {layers} {kind}", measured, kind, quarter(layers)


def _names(results: dict[str, Measured]) -> list[str]:
    return list(dict.fromkeys(name for _, of, kind, _ in _columns(results) for name in of["kinds"][kind]["rankings"]))


def _decisive(results: dict[str, Measured]) -> list[str]:
    columns = list(_columns(results))
    rows = [
        [name, *(_cell(_added(measured, kind, name, count)) for _, measured, kind, count in columns)]
        for name in _names(results)
    ]
    return table(["removed first by", *(title for title, *_ in columns)], rows)


def _drawn(measured: Measured, kind: str, ranking: str) -> list[list[float]]:
    """Return the layers' scores of every draw in which they are finite."""
    return [score for score in measured["kinds"][kind]["rankings"][ranking]["scores"] if score is not None]


def _correlation(measured: Measured, kind: str, ranking: str) -> str:
    """Return the rank correlation of a ranking's scores with the added loss of every layer alone."""
    alone = np.array(measured["kinds"][kind]["alone"])
    return _cell([agreement(np.array(score), alone)[0] for score in _drawn(measured, kind, ranking)])


def _every_count(measured: Measured, kind: str) -> list[str]:
    of_rankings = measured["kinds"][kind]["rankings"]
    removals = [entry for of in of_rankings.values() for entry in of["removed"]]
    counts, a_quarter = sorted({entry["count"] for entry in removals}), quarter(measured["layers"])
    ways = [how for how in ("mean", "refit") if any(how in entry["added"] for entry in removals)]
    head = ["removed first by", "rank correlation", *map(str, counts), *(f"{a_quarter}, {how}" for how in ways)]
    rows = []
    for name, of in of_rankings.items():
        gone = [entry["layers"] for entry in of["removed"] if entry["count"] == a_quarter and entry["draw"] == 0]
        rows.append(
            [
                name,
                _correlation(measured, kind, name),
                *(_cell(_added(measured, kind, name, count)) for count in counts),
                *(_cell(_added(measured, kind, name, a_quarter, how)) for how in ways),
                ", ".join(map(str, gone[0])) if gone else "",
            ]
        )
    return table([*head, f"first {a_quarter}, first draw"], rows)


def tables(results: dict[str, Measured]) -> str:
    """Return the tables of every number of layers."""
    lines: list[str] = []
    for model, measured in results.items():
        for kind in measured["kinds"]:
            alone = ", ".join(f"{loss:.2f}" for loss in measured["kinds"][kind]["alone"])
            lines += [f"### {kind[0].upper()}{kind[1:]} of {TITLES.get(model, model)}", ""]
            lines += [*_every_count(measured, kind), "", f"Each alone, from the first: {alone}.", ""]
    return "\n".join(lines)


def numbers(results: dict[str, Measured]) -> Fields:
    """Return the decisive table, every cell of all tables, and the numbers that sentences compare."""
    a_quarter = "\n".join(_decisive(results))
    fields = {"a quarter": a_quarter, **cells("# A quarter\n" + a_quarter), **cells(tables(results))}
    for model, measured in results.items():
        count = quarter(measured["layers"])
        for kind, of_kind in measured["kinds"].items():
            sizes = of_kind["rankings"]["‖W‖"]["scores"][0]
            fields[f"{model} / {kind} / spread of ‖W‖"] = f"{max(sizes) / min(sizes) - 1:.0%}"
            for name in of_kind["rankings"]:
                if name.startswith("secant") and (drawn := _drawn(measured, kind, name)):
                    fields[f"{model} / {kind} / {name} / sum of parts"] = f"{np.sum(drawn, 1).mean():.2f}"
                    fields[f"{model} / {kind} / {name} / largest part"] = f"{np.abs(drawn).max():,.0f}"
            at_random = _added(measured, kind, RANDOM, count)
            for name in of_kind["rankings"]:
                losses = _added(measured, kind, name, count)
                if losses and name != RANDOM:
                    apart = np.subtract(of_kind["rankings"][name]["windows"], of_kind["rankings"][RANDOM]["windows"])
                    fields[f"{model} / {kind} / {name} / against random"] = interval(apart, 2, "+")
                    fields[f"{model} / {kind} / {name} / cheaper random orders"] = str(
                        sum(loss < np.mean(losses) for loss in at_random)
                    )
    return fields
