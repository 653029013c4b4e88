"""Circuits of methods on tasks: what studies keep of their runs, statistics of these, and leads over other methods."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import duat_jax as duat
from duat_jax.evaluation.circuit_curve import STATISTICS
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Drawn, Prompt, differences, draw
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.estimate import Estimate, estimate
from experiments.study import Measure, Measurements, Piece, Row
from experiments.table import Cell, Frames, Table
from experiments.verdict import Verdict

NEW = ("opposite", "comparative", "successor", "repetition", "bracket", "tense", "property", "colour")
"""Tasks that were written when no method's circuits of them had been seen."""
KNOWN = ("capital", "language", "agreement", "indirect object", "greater than", "pronoun")
KEPT, REMOVED = "kept", "removed"
"""Tests of circuits: everything else is corrupted, or the circuit is."""
PASSES = {
    "secant over masks, twice": 8,
    "secant over masks": 5,
    "integrated gradients over masks, 2 steps": 7,
    "gradient at half masks, twice": 7,
    "integrated gradients over masks, 5 steps": 16,
    "integrated gradients over masks, 10 steps": 31,
    "secant": 4,
    "gradient x change": 4,
    "integrated gradients, 2 steps": 8,
    "integrated gradients, 5 steps": 17,
    "integrated gradients, 10 steps": 32,
    "integrated gradients, layer by layer": 452,
    "mean of both gradients": 6,
    "EAP-GP, 5 steps": 33,
    "AtP*": 65,
    "GIM": 4,
    "DeepLIFT": 6,
    "random": 0,
}
"""The cost of each method by counting, in forward passes over one text for the scores of SmolLM2's 30 layers, a
gradient's way back being two."""
KEYS = "comparison", "setting", "units", "task", "test", "prompt"
"""Columns that say of what a method's circuits are."""
PLAIN, COUNTED = "logf", "counted"
"""Means over sizes on a logarithmic scale: of `f`, and of `1 − |1 − f|`, which counts against a circuit what is beyond
the model."""


def rows_of_runs(drawn: Drawn, clean: np.ndarray, zero: np.ndarray, curves: Mapping[Hashable, object]) -> Iterator[Row]:
    """Yield a row for each method, or method and test: logit differences of the model, at zero, and of circuits."""
    about = {"read": drawn.read, "tokens": drawn.prompts.clean.shape[1], "example": drawn.cases[0].clean}
    for key, runs in curves.items():
        method, test = key if isinstance(key, tuple) else (key, KEPT)
        numbers = {"clean": clean, "zero": zero, "runs": runs}
        yield {**about, "method": method, "test": test, **{name: np.asarray(of, float) for name, of in numbers.items()}}


def task_by_task(
    tasks: Iterable[str], rows_on_task: Callable[..., list[Row]], *counts: int, **loading: Any
) -> Measurements:
    """Yield the circuits of SmolLM2-135M on every task."""
    model = duat.load(smollm2.path(), **loading)
    for task in tasks:
        yield Piece("circuits", {"task": task}, partial(rows_on_task, model, task, *counts))


def measured(
    model: Transformer,
    task: str,
    count: int,
    seed: int,
    of_prompt: Callable[[int, Prompt], Mapping[Any, object]],
) -> list[Row]:
    """Return the rows of every method's circuits on the prompts of a task."""
    drawn = draw(model, task, count, seed=seed)
    clean, corrupted = map(np.asarray, differences(model, drawn.prompts))
    found = [of_prompt(i, row(drawn.prompts, i)) for i in range(count)]
    curves = {key: np.array([of[key] for of in found]) for key in found[0]}
    return list(rows_of_runs(drawn, clean, corrupted, curves))


def _shares(clean: Sequence[float], zero: Sequence[float], runs: object) -> np.ndarray:
    """Return the share of the mean effect that circuits keep, of each prompt and size."""
    low = np.mean(zero)
    return (np.asarray(runs, float) - low) / (np.mean(clean) - low)


def with_statistics(circuits: pd.DataFrame) -> pd.DataFrame:
    """Return circuits with statistics of their curves, which are means over prompts, in the place of the runs."""
    runs = zip(circuits.clean, circuits.zero, circuits.runs, strict=True)
    curves = np.array([_shares(*of).mean(0) for of in runs])
    numbers = {name: STATISTICS[name](curves, curves) for name in (PLAIN, "CPR", "CMD")}
    scored = circuits.drop(columns=["clean", "zero", "runs"])
    return scored.assign(**numbers, **{COUNTED: STATISTICS[PLAIN](1 - np.abs(1 - curves), curves)})


def ahead(first: str) -> str:
    """Return the heading of a method's leads."""
    return f"{first} is ahead by"


def with_leads(scored: pd.DataFrame, *firsts: str, statistic: str = PLAIN) -> pd.DataFrame:
    """Return circuits with the leads of some methods over the method of each row, on the same task."""
    keys = [key for key in KEYS if key in scored]
    for first in firsts:
        of_first = scored.loc[scored.method == first, [*keys, statistic]]
        own = scored[keys].merge(of_first, on=keys, how="left")[statistic].to_numpy()
        scored = scored.assign(**{ahead(first): own - scored[statistic]})
    return scored


def lead(scored: pd.DataFrame, first: str, method: str, comparisons: int = 1, statistic: str = PLAIN) -> Estimate:
    """Return by how much one method is ahead of another, over tasks or prompts."""
    leads = with_leads(scored, first, statistic=statistic)
    return estimate(leads.loc[leads.method == method, ahead(first)].to_numpy(), comparisons)


def lead_of(
    keep: Callable[[pd.DataFrame], pd.DataFrame],
    first: str,
    method: str,
    comparisons: int = 1,
    statistic: str = PLAIN,
    digits: int = 3,
    score: Callable[[pd.DataFrame], pd.DataFrame] = with_statistics,
) -> Measure:
    """Return the measure of a lead over tasks, of the circuits that `keep` keeps."""

    def values(frames: Frames) -> Estimate:
        return lead(score(keep(frames["circuits"])), first, method, comparisons, statistic)

    name = f"lead over {method}" + (", overshoot counted" if statistic == COUNTED else "")
    return Measure(name, values, digits, "+")


def stated_leads(bound: float) -> Callable[..., Verdict]:
    """Return what decides that leads are at least as large as a bound: see `RULE`."""

    def decided(*leads: Estimate) -> Verdict:
        if any(of.high < 0 for of in leads):
            return Verdict.REFUTED
        if any(of.low <= 0 for of in leads):
            return Verdict.UNDECIDED
        return Verdict.CONFIRMED if all(of.value >= bound for of in leads) else Verdict.MIXED

    return decided


RULE = (
    "confirmed if every lead is {} or more with its interval above zero, mixed if all intervals are above zero but a"
    " lead is smaller, refuted if an interval is below zero"
)
"""The rule of `stated_leads`, with the bound in braces."""


def mean_of(keep: Callable[[pd.DataFrame], pd.DataFrame], method: str, statistic: str = PLAIN) -> Measure:
    """Return the measure of the share of the effect that a method's circuits keep."""

    def values(frames: Frames) -> np.ndarray:
        circuits = keep(frames["circuits"])
        return with_statistics(circuits[circuits.method == method])[statistic].to_numpy()

    return Measure(f"share that {method} keep", values)


def mean_alone(column: str) -> Cell:
    """Return the cell of a mean without its interval."""
    return Cell(lambda rows: f"{rows[column].mean():.3f}")


def lead_cell(first: str, comparisons: int) -> Cell:
    """Return the cell of a method's lead, which is empty in the method's own row."""

    def value(rows: pd.DataFrame) -> Estimate | str:
        return "" if rows.method.iloc[0] == first else estimate(rows[ahead(first)].to_numpy(), comparisons)

    return Cell(value, 3, "+")


def table_of_methods(
    firsts: Sequence[str],
    comparisons: int,
    keep: Callable[[pd.DataFrame], pd.DataFrame],
    *,
    passes: bool = True,
    more: Mapping[str, Cell] | None = None,
) -> Table:
    """Return the table of methods: the share that circuits keep, leads over the method, and areas under the curve."""

    def prepare(circuits: pd.DataFrame) -> pd.DataFrame:
        found = with_leads(with_statistics(keep(circuits)), *firsts)
        rank = -found.groupby("method")[PLAIN].transform("mean")
        return found.assign(rank=rank).sort_values("rank", kind="stable")

    cost = {"passes": Cell(lambda of: str(PASSES.get(of.method.iloc[0], "")))}
    cells = {
        **(cost if passes else {}),
        PLAIN: Cell(PLAIN),
        **{ahead(first): lead_cell(first, comparisons) for first in firsts},
        **(more or {"CPR": mean_alone("CPR"), "CMD": mean_alone("CMD")}),
    }
    return Table("circuits", ("method",), cells, prepare=prepare)
