"""Numbers, tables and the picture of `experiments.lora.why`, of its kept results."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.evaluation.statistics import IntervalEstimate
from experiments.estimate import Estimate, Method, estimate, ratio
from experiments.lora.anatomy import CUTS, KINDS, OTHERS, TOP
from experiments.lora.anatomy import RANKS as CUT_TO
from experiments.lora.tuning import BIASES, EVERYTHING, IN_MLPS, MATRICES, RANKS, TASKS
from experiments.markdown import table
from experiments.pictures.panels import OTHER, OURS
from experiments.run import frames_of
from experiments.table import Cell, Frames, Table, render, rows_of

Texts = Float[np.ndarray, "texts"]

STEPS_OF_LADDER = {
    "printed": "as printed in Eq. 18",
    "own": "each layer's own",
    "weights": "tuned weights, base's dynamics",
    "dynamics": "base's weights, tuned dynamics",
}
PARAMETERS = {"W'₁": "no", "b'₃": "no", "W'₂": "yes", "b'₂": "no", "W'₃": "yes"}
"""The parameters of the closed form, and whether Eq. 18 changes them."""


def of_seeds(rows: pd.Series) -> np.ndarray:
    """Return numbers of every text, mean over the seeds."""
    return np.mean([np.array(of) for of in rows], 0)


def runs_of(frames: Frames, task: str, name: str, at: str = "best") -> pd.DataFrame:
    """Return the runs of a method at a learning rate."""
    return rows_of(frames["runs"], task=task, trained=name, at=at)


def base(frames: Frames, task: str, field: str) -> Texts:
    """Return a number of every text by the base."""
    return np.array(rows_of(frames["base"], task=task)[field].iloc[0])


def learned(frames: Frames, task: str, name: str, at: str = "best") -> Texts:
    """Return by how much the loss of every test text fell."""
    return base(frames, task, "loss") - of_seeds(runs_of(frames, task, name, at).loss)


def forgotten(frames: Frames, task: str, name: str, at: str = "best") -> Texts:
    """Return by how much the loss of every original text rose."""
    return of_seeds(runs_of(frames, task, name, at).original) - base(frames, task, "original")


def learned_share(task: str, name: str, frames: Frames) -> Estimate:
    """Return what a method learns, in per cent of what fine-tuning of all parameters learns."""
    return ratio(learned(frames, task, name), learned(frames, task, EVERYTHING)).scaled(100)


def at_equal_learning(frames: Frames, task: str, name: str) -> Texts | None:
    """Return what full fine-tuning forgets of every text where it has learned as much, between two rates, if it has."""
    # To first order in the means, so that the interval also has the place between the rates in it.
    rates = rows_of(frames["runs"], task=task, trained=EVERYTHING)["at"].unique()
    of_rates = [(learned(frames, task, EVERYTHING, at), forgotten(frames, task, EVERYTHING, at)) for at in rates]
    here = learned(frames, task, name)
    reached = sorted([(0 * here, 0 * here), *of_rates], key=lambda of: float(of[0].mean()))
    above = next((i for i, (at, _) in enumerate(reached) if at.mean() >= here.mean()), None)
    if above is None:
        return None
    (first, before), (last, after) = reached[above - 1], reached[above]
    place = (here.mean() - first.mean()) / (last - first).mean()
    moved = here - first - place * (last - first)  # of each text, how far the place is from the one of the means
    return before + place * (after - before) + moved * (after - before).mean() / (last - first).mean()


def against_full(task: str, name: str, frames: Frames) -> Texts:
    """Return by how much more a method forgets than full fine-tuning at equal learning."""
    full = at_equal_learning(frames, task, name)
    if full is None:
        raise ValueError(f"full fine-tuning never learns as much as {name}")
    return forgotten(frames, task, name) - full


def ladder_of(task: str, name: str, key: str, frames: Frames) -> Estimate:
    """Return the part of the change of the loss that a step of the ladder makes, in per cent."""
    return climbed(key, runs_of(frames, task, name))


def climbed(key: str, runs: pd.DataFrame) -> Estimate:
    """Return the same of runs."""
    at = {step: of_seeds(runs.ladder.map(lambda of, step=step: of[step])) for step in ("base", "tuned", key)}
    return ratio(at["base"] - at[key], at["base"] - at["tuned"]).scaled(100)


def cut_to(task: str, rank: str, frames: Frames, cut: str = TOP) -> Estimate:
    """Return what full fine-tuning's change, cut to a rank, keeps of what it learned, in per cent."""
    losses = of_seeds(runs_of(frames, task, MATRICES)["cut"].map(lambda of: of[cut][rank]))
    return ratio(base(frames, task, "loss") - losses, learned(frames, task, MATRICES)).scaled(100)


def agreement_of(task: str, units: str, compared: str, frames: Frames, measure: str = "rank correlation") -> Estimate:
    """Return how alike two ledgers are, with its interval by the jackknife over texts."""
    keys = {"task": task, "units": units, "compared": compared, "measure": measure}
    row = rows_of(frames["agreement"], **keys).iloc[0]
    return Estimate(row.value, row.low, row.high, len(base(frames, task, "loss")), Method.NONE)


def _named(methods: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(methods.task, methods.trained, strict=True))


def learning(frames: Frames) -> list[str]:
    """Return the table of what every method learns and forgets."""
    rows = []
    for task, name in _named(frames["methods"]):
        runs = runs_of(frames, task, name)
        losses = runs.loss.map(np.mean)
        full = at_equal_learning(frames, task, name) if name != EVERYTHING else None
        numbers = frames["methods"].set_index(["task", "trained"]).loc[(task, name)]
        right = estimate(100 * of_seeds(runs.accuracy)).written(1) if task != "English" else ""
        rows.append(
            [
                *(task, name, f"{numbers.numbers:,.0f}", f"{numbers.rate:g}"),
                f"{losses.mean():.3f} ({losses.min():.3f} to {losses.max():.3f})",
                learned_share(task, name, frames).written(1),
                right,
                estimate(forgotten(frames, task, name)).written(3, "+"),
                "" if full is None else estimate(full).written(3, "+"),
            ]
        )
    head = ["task", "trained", "numbers", "rate", "loss (seeds)", "learned, % of full", "right, %", "forgotten"]
    return [*table([*head, "by full at equal learning"], rows), "", "*Intervals by bootstrap over 48 texts.*"]


def cuts(frames: Frames) -> list[str]:
    """Return the table of the change cut to a rank."""
    rows = []
    for task in TASKS:
        for rank in map(str, CUT_TO):
            kept = [cut_to(task, rank, frames, cut).written(1) for cut in CUTS]
            whole, name = learned(frames, task, MATRICES), f"rank {rank}"
            adapters = ratio(learned(frames, task, name), whole).scaled(100).written(1) if name in RANKS else ""
            rows.append([task, rank, *kept, adapters])
    note = "*Per cent of what full fine-tuning of these matrices learned. Intervals by bootstrap over 48 texts.*"
    return [*table(["task", "rank", *CUTS, "adapters of that rank, trained"], rows), "", note]


def agreements(frames: Frames) -> list[str]:
    """Return the table of the agreement of ledgers."""
    of = frames["agreement"]
    written = [IntervalEstimate(*row).written(2) for row in zip(of.value, of.low, of.high, strict=True)]
    found = of.assign(written=written)
    found["column"] = found.units + ", " + found.measure.replace({"rank correlation": "ranks"})
    wide = Table("agreement", ("task", "compared"), {"": Cell("written")}, columns="column")
    return [*render(wide, {"agreement": found}), "", "*Intervals by the jackknife over 48 texts.*"]


def of_kind(place: int, runs: pd.DataFrame) -> Estimate:
    """Return the share of the change that the weights of a kind carry."""
    parts = of_seeds(runs["by kind"])
    return ratio(parts[:, place], parts.sum(1)).scaled(100)


best = partial(rows_of, at="best")
"""Returns the runs at the best rates."""


def _rank(measure: str) -> Callable[[pd.DataFrame], str]:
    return lambda runs: f"{np.mean([[of[measure] for of in each] for each in runs.ranks]):.1f}"


def _step(key: str, runs: pd.DataFrame) -> Estimate | str:
    return "" if key in ("printed", "own") and runs.trained.iloc[0] != IN_MLPS else climbed(key, runs)


def moved(runs: pd.DataFrame) -> pd.DataFrame:
    """Return how far each parameter moved on each text."""
    rows = [
        {"task": run.task, "trained": run.trained, "text": text, **of}
        for run in best(runs).itertuples()
        if isinstance(run.moved, list)
        for text, of in enumerate(run.moved)
    ]
    return pd.DataFrame(rows)


MEASURES = {"stable": "stable rank", "entropy": "entropy rank", "energy": "rank of 90 % of the squares"}
TABLES: dict[str, Table | Callable[[Frames], list[str]]] = {
    "Learned and forgotten": learning,
    "Learning rates that were tried": Table(
        "tried",
        ("task", "trained"),
        {"": Cell(lambda rows: f"{rows.loss.iloc[0]:.3f}")},
        columns="rate",
        prepare=lambda tried: tried.sort_values("rate", kind="stable"),
        note="Validation losses.",
    ),
    "Which weights carry the change": Table(
        "runs",
        ("task", "trained"),
        {kind: Cell(partial(of_kind, place), 0) for place, kind in enumerate((*KINDS, *OTHERS))}
        | {"ledgers that hold": Cell(lambda runs: f"{runs['ledger holds'].sum():.0f}")},
        prepare=best,
        note="Per cent of the change of the loss, of 144 texts and models.",
    ),
    "The effective rank of the change": Table(
        "runs",
        ("task", "trained"),
        {title: Cell(_rank(measure)) for measure, title in MEASURES.items()},
        prepare=best,
        note="Means over the 36 matrices; the matrices have 192 rows.",
    ),
    "The change cut to a rank": cuts,
    "Agreement with the ledger of full fine-tuning": agreements,
    "Eq. 18 and the change": Table(
        "runs",
        ("task", "trained"),
        {title: Cell(partial(_step, key), 0) for key, title in STEPS_OF_LADDER.items()},
        prepare=best,
        note="Per cent of the change of the loss.",
    ),
    "Eq. 18 and the parameters": Table(
        "runs",
        ("task", "trained"),
        {
            f"{parameter} ({'in' if changed == 'yes' else 'not in'} Eq. 18)": Cell(parameter, 1, scale=100)
            for parameter, changed in PARAMETERS.items()
        },
        unit="text",
        prepare=moved,
        note="Per cent of each parameter's size.",
    ),
}


def picture() -> dict[str, Any]:
    """Return what methods learn, what is kept of a change cut to a rank, and what Eq. 18 makes of a change."""
    frames = frames_of("lora_why")

    def ends(of: Estimate) -> list[float]:
        return [round(end, 4) for end in of[:3]]

    shown = BIASES, *RANKS, MATRICES
    return {
        "learned": {task: {name: ends(learned_share(task, name, frames)) for name in shown} for task in TASKS},
        "cut": {task: {rank: ends(cut_to(task, rank, frames)) for rank in map(str, CUT_TO)} for task in TASKS},
        "ladder": {
            task: {title: ends(ladder_of(task, IN_MLPS, key, frames)) for key, title in STEPS_OF_LADDER.items()}
            for task in TASKS
        },
    }


@styled
def draw_lora_why(numbers: dict[str, Any]) -> Figure:
    """Draw what every rank learns, what is kept of a change cut to a rank, and what Eq. 18 makes of a change."""
    figure = Figure(figsize=(9.8, 3.2))
    learned, cut, ladder = figure.subplots(1, 3)
    for i, (task, colour) in enumerate(zip(numbers["learned"], (OURS, OTHER), strict=True)):
        for axes, panel in ((learned, "learned"), (ladder, "ladder")):
            values = np.array(list(numbers[panel][task].values()))
            places = np.arange(len(values)) + 0.24 * i - 0.12
            axes.hlines(places, values[:, 1], values[:, 2], colors=colour, linewidth=1.2)
            axes.scatter(values[:, 0], places, color=colour, s=22, zorder=3, label=task)
        values = np.array(list(numbers["cut"][task].values()))
        cut.fill_between(range(len(values)), values[:, 1], values[:, 2], color=colour, alpha=0.2, linewidth=0)
        cut.plot(values[:, 0], marker="o", markersize=4, color=colour)
        cut.set_xticks(range(len(values)), list(numbers["cut"][task]))
    for axes, panel in ((learned, "learned"), (ladder, "ladder")):
        titles = [name.replace(", ", ",\n") for name in next(iter(numbers[panel].values()))]
        axes.set_yticks(range(len(titles)), titles)
        axes.set_ylim(len(titles) - 0.5, -0.5)
    for axes in (learned, cut, ladder):
        axes.grid(alpha=0.3)
    learned.set(title="what is learned", xlabel="% of full fine-tuning")
    cut.set(title="the change of all matrices, cut", xlabel="kept rank of each matrix", ylabel="% of what was learned")
    ladder.set(title="adapters in the MLPs", xlabel="% of the change of the loss")
    figure.legend(*learned.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
