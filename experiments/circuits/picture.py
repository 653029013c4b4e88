"""The picture of how much of the effect the circuits of every method keep, and what the method costs."""

from typing import Any

from matplotlib.figure import Figure

from benchmarks import attribution
from duat_jax.display.pictures import styled
from experiments.estimate import estimate
from experiments.kept_results import kept
from experiments.pictures.panels import colours, dots
from experiments.run import frames_of
from experiments.task_curves import KEPT, PLAIN, with_statistics

COST = "costs / {} / plain forward passes [quartiles] / value"


def kept_and_cost() -> dict[str, Any]:
    """Return every method's cost, and how much of the effect its circuits of neurons keep."""
    circuits, costs = frames_of("circuits")["circuits"], attribution.fields(kept("attribution"))
    rows = circuits[(circuits.comparison == "Every method") & (circuits.test == KEPT)]
    return {
        method: [float(costs[COST.format(method)]), *(round(float(number), 3) for number in estimate(of[PLAIN])[:3])]
        for method, of in with_statistics(rows).groupby("method", sort=False)
        if COST.format(method) in costs
    }


@styled
def draw_circuits(numbers: dict[str, Any]) -> Figure:
    """Draw every method's cost and how much of the effect its circuits keep."""
    figure = Figure(figsize=(8.6, 4.2))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    order = sorted(numbers, key=lambda method: -numbers[method][1])
    dots(left, {method: numbers[method][1:] for method in order}, colours(order))
    left.set_xlabel("effect that circuits keep, mean over six tasks (logf)")
    costs = {method: numbers[method][:1] * 3 for method in order}
    dots(right, costs, colours(order), marker="s")
    right.set_xscale("log")
    right.set_xlim(1.5, None)
    right.set_xlabel("cost in plain forward passes")
    return figure
