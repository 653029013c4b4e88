"""Circuits of methods on tasks: what studies keep of their runs, statistics of these, and leads over other methods."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from duat_jax.evaluation.circuit_curve import STATISTICS
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Drawn, Prompt, differences, draw
from duat_jax.models.transformer import Transformer
from experiments.estimate import Estimate, estimate
from experiments.study import Measure, Row
from experiments.table import Cell, Frames, Table
from experiments.verdict import Verdict

NEW = ("opposite", "comparative", "successor", "repetition", "bracket", "tense", "property", "colour")
"""Tasks that were written when no method's circuits of them had been seen."""
KNOWN = ("capital", "language", "agreement", "indirect object", "greater than", "pronoun")
KEPT, REMOVED = "kept", "removed"
"""Tests of circuits: everything else is corrupted, or the circuit is."""
KEYS = "comparison", "setting", "units", "task", "test", "prompt"
"""Columns that say of what a method's circuits are."""
PLAIN, COUNTED = "logf", "counted"
"""Means over sizes on a logarithmic scale: of `f`, and of `1 − |1 − f|`, which counts against a circuit what is beyond
the model."""


def rows_of(drawn: Drawn, clean: np.ndarray, zero: np.ndarray, curves: Mapping[Hashable, object]) -> Iterator[Row]:
    """Yield a row for each method, or method and test: logit differences of the model, at zero, and of circuits."""
    about = {"read": drawn.read, "tokens": drawn.prompts.clean.shape[1], "example": drawn.cases[0].clean}
    for key, runs in curves.items():
        method, test = key if isinstance(key, tuple) else (key, KEPT)
        numbers = {"clean": clean, "zero": zero, "runs": runs}
        yield {**about, "method": method, "test": test, **{name: np.asarray(of, float) for name, of in numbers.items()}}


def measured(
    model: Transformer,
    task: str,
    count: int,
    seed: int,
    of_prompt: Callable[[int, Prompt], Mapping[Hashable, object]],
) -> list[Row]:
    """Return the rows of every method's circuits on the prompts of a task."""
    drawn = draw(model, task, count, seed=seed)
    clean, corrupted = map(np.asarray, differences(model, drawn.prompts))
    found = [of_prompt(i, row(drawn.prompts, i)) for i in range(count)]
    curves = {key: np.array([of[key] for of in found]) for key in found[0]}
    return list(rows_of(drawn, clean, corrupted, curves))


def _shares(clean: Sequence[float], zero: Sequence[float], runs: object) -> np.ndarray:
    """Return the share of the mean effect that circuits keep, of each prompt and size."""
    low = np.mean(zero)
    return (np.asarray(runs, float) - low) / (np.mean(clean) - low)


def _without_runs(circuits: pd.DataFrame) -> pd.DataFrame:
    return circuits.drop(columns=["clean", "zero", "runs"])


def _curves(circuits: pd.DataFrame) -> list[np.ndarray]:
    return [_shares(*curve) for curve in zip(circuits.clean, circuits.zero, circuits.runs, strict=True)]


def with_statistics(circuits: pd.DataFrame) -> pd.DataFrame:
    """Return circuits with statistics of their curves, which are means over prompts, in the place of the runs."""
    curves = np.array([of.mean(0) for of in _curves(circuits)])
    numbers = {name: STATISTICS[name](curves, curves) for name in (PLAIN, "CPR", "CMD")}
    return _without_runs(circuits).assign(**numbers, **{COUNTED: STATISTICS[PLAIN](1 - np.abs(1 - curves), curves)})


def by_prompt(circuits: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each prompt, with its share of the mean effect over prompts."""
    curves = _curves(circuits)
    repeated = _without_runs(circuits).loc[circuits.index.repeat([len(of) for of in curves])]
    prompts = np.concatenate([range(len(of)) for of in curves])
    return repeated.assign(prompt=prompts, **{PLAIN: STATISTICS[PLAIN](np.vstack(curves), np.empty(0))})


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
    passes: Mapping[str, int] | None = None,
    score: Callable[[pd.DataFrame], pd.DataFrame] = with_statistics,
    rows: tuple[str, ...] = ("method",),
    more: Mapping[str, Cell] | None = None,
    note: str = "",
) -> Table:
    """Return the table of methods: the share that circuits keep, leads over the method, and areas under the curve."""

    def prepare(circuits: pd.DataFrame) -> pd.DataFrame:
        found = with_leads(score(keep(circuits)), *firsts)
        return found.assign(rank=-found.groupby(list(rows))[PLAIN].transform("mean")).sort_values(
            [*rows[:-1], "rank"], kind="stable"
        )

    cost = {"passes": Cell(lambda of: str((passes or {}).get(of.method.iloc[0], "")))}
    cells = {
        **(cost if passes else {}),
        PLAIN: Cell(PLAIN),
        **{ahead(first): lead_cell(first, comparisons) for first in firsts},
        **(more or {"CPR": mean_alone("CPR"), "CMD": mean_alone("CMD")}),
    }
    return Table("circuits", rows, cells, prepare=prepare, note=note)


def table_of_prompts(
    first: str, comparisons: int, keep: Callable[[pd.DataFrame], pd.DataFrame], rows: tuple[str, ...]
) -> Table:
    """Return the table of methods on one task, with intervals over its prompts."""
    prompts = {"prompts": Cell(lambda of: str(len(of)))}
    return table_of_methods([first], comparisons, keep, score=by_prompt, rows=rows, more=prompts)


def table_of_tasks(keep: Callable[[pd.DataFrame], pd.DataFrame], rows: tuple[str, ...] = ("task",)) -> Table:
    """Return the table of the share that every method's circuits keep of each task's effect."""
    return Table("circuits", rows, PLAIN, columns="method", prepare=lambda of: with_statistics(keep(of)))
