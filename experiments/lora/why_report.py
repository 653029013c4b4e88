"""Tables of docs/findings/lora.md on why LoRA works, from the stored results of `experiments.lora.why`."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap
from experiments.lora.anatomy import CUTS, KINDS, OTHERS, TOP, effective_ranks
from experiments.lora.tuning import BIASES, EVERYTHING, IN_MLPS, MATRICES, RANKS
from experiments.markdown import Fields, cells, interval, table

Measured = dict[str, Any]
"""The measurements of one task."""

EQ_18 = {"W'₁": "no", "b'₃": "no", "W'₂": "yes", "b'₂": "no", "W'₃": "yes"}
"""The parameters that Eq. 18 changes."""
STEPS_OF_LADDER = {
    "printed": "as printed in Eq. 18",
    "own": "each layer's own",
    "weights": "tuned weights, base's dynamics",
    "dynamics": "base's weights, tuned dynamics",
}
FEATURES, NEURONS = 192, 768
"""The sizes of the embedded model's matrices, for the ranks of random ones."""


def _texts(seeds: list[Measured], field: str) -> np.ndarray:
    """Return a number of every text, mean over the seeds."""
    return np.mean([seed[field] for seed in seeds], 0)


def learned(measured: Measured, name: str) -> np.ndarray:
    """Return by how much the loss of every test text fell, mean over the seeds."""
    return np.array(measured["base"]["loss"]) - _texts(measured["methods"][name]["seeds"], "loss")


def forgotten(measured: Measured, name: str) -> np.ndarray:
    """Return by how much the loss of every original text rose, mean over the seeds."""
    return _texts(measured["methods"][name]["seeds"], "original") - np.array(measured["base"]["original"])


def _ratio(of: np.ndarray, to: np.ndarray) -> IntervalEstimate:
    """Return the ratio of two means over texts in percent, with its interval."""
    return bootstrap(np.stack([of, to], -1), lambda means: 100 * means[..., 0] / means[..., 1])


def _of_full_at_equal_learning(measured: Measured, name: str) -> str:
    """Return what full fine-tuning forgets where it has learned as much, between no training and some rates."""
    full = measured["methods"][EVERYTHING]
    if name == EVERYTHING or not full["lower"]:
        return ""
    base = measured["base"]
    known = [learned(measured, name)]
    for seeds in (full["lower"], *full["between"], full["seeds"]):
        known += [
            np.array(base["loss"]) - _texts(seeds, "loss"),
            _texts(seeds, "original") - np.array(base["original"]),
        ]

    def interpolated(means: np.ndarray) -> np.ndarray:
        rows = np.atleast_2d(means)
        found = []
        for at, *points in rows:
            reached, lost = zip((0, 0), *sorted(zip(points[::2], points[1::2], strict=True)), strict=True)
            found.append(np.interp(at, reached, lost))
        return np.array(found) if means.ndim > 1 else found[0]

    if known[0].mean() > max(of.mean() for of in known[1::2]):
        return "it learned less"
    return interval(bootstrap(np.stack(known, -1), interpolated), 3, "+")


def _learning(measured: Measured, *, answers: bool) -> list[str]:
    rows = []
    for name, method in measured["methods"].items():
        seeds = [float(np.mean(seed["loss"])) for seed in method["seeds"]]
        accuracy = [interval(100 * _texts(method["seeds"], "accuracy"), 1)] if answers else []
        rows.append(
            [
                name,
                f"{method['numbers']:,}",
                f"{method['rate']:g}",
                f"{np.mean(seeds):.3f} ({min(seeds):.3f} to {max(seeds):.3f})",
                interval(_ratio(learned(measured, name), learned(measured, EVERYTHING)), 1),
                *accuracy,
                interval(forgotten(measured, name), 3, "+"),
                _of_full_at_equal_learning(measured, name),
            ]
        )
    head = ["trained", "numbers", "rate", "loss (seeds)", "learned, % of full", *(["right, %"] if answers else [])]
    return table([*head, "forgotten", "by full at equal learning"], rows)


def _rates(measured: Measured) -> list[str]:
    rates = sorted({found["rate"] for method in measured["methods"].values() for found in method["tried"]})
    rows = []
    for name, method in measured["methods"].items():
        tried = {found["rate"]: f"{found['loss']:.3f}" for found in method["tried"]}
        rows.append([name, *(tried.get(rate, "") for rate in rates)])
    return table(["validation loss, by rate", *(f"{rate:g}" for rate in rates)], rows)


def _weights(measured: Measured) -> list[str]:
    rows = []
    for name, method in measured["methods"].items():
        parts = np.mean([seed["by kind"] for seed in method["seeds"]], 0)
        whole = parts.sum(1)
        rows.append([name, *(interval(_ratio(part, whole), 0) if part.any() else "0" for part in parts.T)])
    return table(["share of the change, %", *KINDS, *OTHERS], rows)


def _layers(measured: Measured) -> list[str]:
    names = [*RANKS, MATRICES]
    rows = []
    for layer in range(len(measured["methods"][MATRICES]["seeds"][0]["by layer"][0])):
        row = [str(layer)]
        for name in names:
            parts = np.mean([seed["by layer"] for seed in measured["methods"][name]["seeds"]], 0)
            row.append(interval(_ratio(parts[:, layer], parts.sum(1)), 0))
        rows.append(row)
    return table(["layer, share of the change, %", *names], rows)


def _random_ranks() -> dict[str, float]:
    """Return the effective ranks of matrices of random numbers, mean over a layer's six shapes."""
    draw = np.random.default_rng(0)
    shapes = [(FEATURES, FEATURES)] * 4 + [(FEATURES, NEURONS)] * 2
    found = [effective_ranks(np.linalg.svd(draw.standard_normal(shape), compute_uv=False)) for shape in shapes]
    return {key: float(np.mean([of[key] for of in found])) for key in found[0]}


MEASURES = {"stable": "stable rank", "entropy": "entropy rank", "energy": "rank of 90 % of the squares"}


def _ranks(measured: Measured) -> list[str]:
    names = [MATRICES, EVERYTHING, "rank 64", "rank 16", "rank 4"]
    found = {
        name: np.array(
            [[[of[key] for key in MEASURES] for of in seed["ranks"]] for seed in measured["methods"][name]["seeds"]]
        ).mean(0)
        for name in names
    }
    rows = []
    by_layer = found[MATRICES].reshape(-1, len(KINDS), len(MEASURES)).mean(1)
    rows += [[f"{MATRICES}, layer {layer}", *(f"{of:.1f}" for of in ranks)] for layer, ranks in enumerate(by_layer)]
    rows += [[name, *(interval(of, 1) for of in found[name].T)] for name in names]
    rows.append(["random numbers", *(f"{of:.1f}" for of in _random_ranks().values())])
    return table(["change of a matrix", *MEASURES.values()], rows)


def _cuts(measured: Measured) -> list[str]:
    seeds = measured["methods"][MATRICES]["seeds"]
    base, whole = np.array(measured["base"]["loss"]), learned(measured, MATRICES)
    rows = []
    for rank in seeds[0]["cut"][TOP]:
        losses = [np.mean([seed["cut"][cut][rank] for seed in seeds], 0) for cut in CUTS]
        kept = [interval(_ratio(base - loss, whole), 1) for loss in losses]
        trained = f"rank {rank}"
        adapters = interval(_ratio(learned(measured, trained), whole), 1) if trained in measured["methods"] else ""
        rows.append([rank, *kept, adapters])
    return table(["rank", *CUTS, "adapters of that rank, trained"], rows)


def _agreement(measured: Measured) -> list[str]:
    found = measured["agreement"]
    rows = []
    for compared in found["matrices"]:
        row = [compared]
        for units in found.values():
            row += [interval(IntervalEstimate(*units[compared][key]), 2) for key in ("rank correlation", "overlap")]
        rows.append(row)
    head = [f"{units}, {key}" for units in found for key in ("ranks", "overlap")]
    return table(["ledger of", *head], rows)


def _ladder(measured: Measured) -> list[str]:
    rows = []
    for name, method in measured["methods"].items():
        losses = {key: np.mean([seed["ladder"][key] for seed in method["seeds"]], 0) for key in ("base", "tuned")}
        whole = losses["base"] - losses["tuned"]
        row = [name]
        for key in STEPS_OF_LADDER:
            part = losses["base"] - np.mean([seed["ladder"][key] for seed in method["seeds"]], 0)
            row.append("" if key in ("printed", "own") and name != IN_MLPS else interval(_ratio(part, whole), 0))
        rows.append(row)
    return table(["share of the change, %", *STEPS_OF_LADDER.values()], rows)


def _moved(measured: Measured) -> list[str]:
    names = [name for name, method in measured["methods"].items() if "moved" in method["seeds"][0]]
    rows = []
    for parameter, by_equation in EQ_18.items():
        row = [parameter, by_equation]
        for name in names:
            of = [[text[parameter] for text in seed["moved"]] for seed in measured["methods"][name]["seeds"]]
            row.append(interval(100 * np.mean(of, 0), 1))
        rows.append(row)
    return table(["parameter", "in Eq. 18", *(f"{name}, %" for name in names)], rows)


SECTIONS: dict[str, Callable[[Measured], list[str]]] = {
    "Which weights carry the change": _weights,
    "Which layers carry it": _layers,
    "The effective rank of the change": _ranks,
    "The change cut to a rank": _cuts,
    "Agreement with the ledger of full fine-tuning": _agreement,
    "Eq. 18 and the change": _ladder,
    "Eq. 18 and the parameters": _moved,
}
"""The tables of a task by their headings; what each shows stands on the page."""


def tables(task: str, measured: Measured) -> Iterator[tuple[str, list[str]]]:
    """Yield every table of a task with its heading."""
    yield "Learned and forgotten", _learning(measured, answers=task != "English")
    yield "Learning rates that were tried", _rates(measured)
    for title, make in SECTIONS.items():
        yield title, make(measured)


def numbers(results: dict[str, Measured]) -> Fields:
    """Return the fields of the page: every table by its heading and task, every cell, and what sentences quote."""
    fields: Fields = {}
    for task, measured in results.items():
        for title, lines in tables(task, measured):
            fields[f"{task}: {title}"] = "\n".join(lines)
            fields |= cells("\n".join([f"# {task}: {title}", "", *lines, ""]))
        seeds = [seed for method in measured["methods"].values() for seed in method["seeds"]]
        texts = len(measured["base"]["loss"])
        lower = measured["methods"][EVERYTHING]["lower"]
        fields |= {
            f"{task}: texts": str(texts),
            f"{task}: loss before": f"{np.mean(measured['base']['loss']):.3f}",
            f"{task}: right before": f"{100 * np.mean(measured['base']['accuracy']):.1f}",
            f"{task}: original before": f"{np.mean(measured['base']['original']):.3f}",
            f"{task}: ledgers": f"{len(seeds) * texts:,}",
            f"{task}: ledgers that hold": f"{sum(seed['ledger holds'] for seed in seeds):,}",
            f"{task}: ledger error": f"{max(seed['ledger error'] for seed in seeds):.0e}",
        }
        if lower:
            fall = np.array(measured["base"]["loss"]) - _texts(lower, "loss")
            rise = _texts(lower, "original") - np.array(measured["base"]["original"])
            fields[f"{task}: learned at a lower rate"] = interval(_ratio(fall, learned(measured, EVERYTHING)), 1)
            fields[f"{task}: forgotten at a lower rate"] = interval(rise, 3, "+")
    return fields


def curves(results: dict[str, Measured]) -> dict[str, Any]:
    """Return the numbers of the picture."""
    found: dict[str, Any] = {"learned": {}, "cut": {}, "ladder": {}}
    for task, measured in results.items():
        full = learned(measured, EVERYTHING)
        found["learned"][task] = {
            name: list(_ratio(learned(measured, name), full)) for name in (BIASES, *RANKS, MATRICES)
        }
        base, whole = np.array(measured["base"]["loss"]), learned(measured, MATRICES)
        cut = [seed["cut"][TOP] for seed in measured["methods"][MATRICES]["seeds"]]
        found["cut"][task] = {
            rank: list(_ratio(base - np.mean([seed[rank] for seed in cut], 0), whole)) for rank in cut[0]
        }
        seeds = measured["methods"][IN_MLPS]["seeds"]
        of = {key: np.mean([seed["ladder"][key] for seed in seeds], 0) for key in seeds[0]["ladder"]}
        found["ladder"][task] = {
            title: list(_ratio(of["base"] - of[key], of["base"] - of["tuned"]))
            for key, title in STEPS_OF_LADDER.items()
        }
    return found
