"""The loss that choices of matrices take back, leads of exact parts over other scores, and what decides on them."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from duat_jax.evaluation.statistics import agreement
from experiments.bits.scores import (
    ALONE,
    END,
    ERROR,
    EXACT,
    FEW,
    FISHER,
    MEAN_SIZE,
    OUTPUTS,
    ROOT_ERROR,
    ROOT_FISHER,
    SET_BACK,
    SIGNED,
    SIZE,
    START,
    TRAPEZOID,
)
from experiments.estimate import Estimate, estimate
from experiments.run import frames_of
from experiments.study import Measure
from experiments.table import Cell, Frames, Table
from experiments.verdict import Verdict, decide, together

AT_RANDOM, LEVEL, LEAST = "at random", 0.02, 0.05
"""The name of random choices; the largest lead that is level; the smallest loss by rounding that is judged, in nats."""
OURS = EXACT + SIZE
BEHIND = (START + SIZE, FISHER, ROOT_FISHER, ERROR, ROOT_ERROR, OUTPUTS, AT_RANDOM)
"""The scores that exact parts were predicted to be ahead of."""
JUDGED = (*BEHIND, TRAPEZOID + SIZE, EXACT + SIGNED, EXACT + MEAN_SIZE, ALONE, SET_BACK)
FURTHER = [
    (OURS, END + SIZE),
    (EXACT + SIGNED, END + SIGNED),
    (OURS, START + MEAN_SIZE),
    (EXACT + FEW, ALONE),
    (EXACT + FEW, SET_BACK),
]
"""Leads that were asked for when the results were seen."""
CASE = ["model", "bits", "share", "draw"]


def taken_back(losses: pd.DataFrame) -> pd.DataFrame:
    """Return the share of the loss by rounding that every choice takes back; what costs too little isn't judged."""
    gap = losses.in_few_bits - losses.in_eight_bits
    taken = (losses.in_few_bits - losses.losses.map(np.mean)) / gap
    return losses.assign(taken=taken).drop(columns="losses")[gap >= LEAST]


def means_of_models(losses: pd.DataFrame) -> pd.DataFrame:
    """Return every score's mean over bits, budgets and draws of each model, the best score first."""
    means = taken_back(losses).groupby(["score", "model"], sort=False).taken.mean().reset_index()
    return means.assign(rank=-means.groupby("score").taken.transform("mean")).sort_values("rank", kind="stable")


def by_model_and_bits(losses: pd.DataFrame) -> pd.DataFrame:
    """Return what every choice takes back with the model and the number of bits as one case."""
    found = taken_back(losses)
    return found.assign(case=found.model + found.bits.map(", {} bits".format))


def leads(pairs: Iterable[tuple[str, str]], losses: pd.DataFrame) -> pd.DataFrame:
    """Return the leads of some scores over others in every case."""
    wide = taken_back(losses).pivot(index=CASE, columns="score", values="taken")
    every = [
        (wide[first] - wide[second]).rename("lead").reset_index().assign(first=first, before=second)
        for first, second in pairs
    ]
    return pd.concat(every)


def over_models(rows: pd.DataFrame) -> pd.Series:
    """Return the mean lead of each model."""
    return rows.groupby("model", sort=False).lead.mean()


def of_model(name: str, column: str = "taken", sign: str = "") -> Cell:
    """Return the cell of a model's mean."""
    return Cell(lambda rows: f"{rows[rows.model == name][column].mean():{sign}.3f}")


def _of_bits(bits: int) -> Cell:
    return Cell(lambda rows: f"{over_models(rows[rows.bits == bits]).mean():+.3f}")


def leads_table(pairs: Sequence[tuple[str, str]], models: Iterable[str]) -> Table:
    """Return the table of leads: over models, for each number of bits, and for each model."""
    cells = {
        "lead": Cell(lambda rows: estimate(over_models(rows).to_numpy()), 3, "+"),
        **{f"{bits} bits": _of_bits(bits) for bits in (3, 4)},
        **{name: of_model(name, "lead", "+") for name in models},
    }
    rows = ("before",) if len({first for first, _ in pairs}) == 1 else ("first", "before")
    return Table("losses", rows, cells, prepare=partial(leads, pairs))


def lead_over(score: str) -> Measure:
    """Return the measure of the lead of the sizes of exact parts over another score."""

    def values(frames: Frames) -> np.ndarray:
        return over_models(leads([(OURS, score)], frames["losses"])).to_numpy()

    return Measure(f"lead over {score}", values, 3, "+")


AHEAD_RULE = (
    "confirmed if every lead is .02 or more with its interval above zero, refuted if all intervals are below .02, mixed"
    " if some leads are confirmed and others refuted, otherwise undecided"
)


def all_ahead(*found: Estimate) -> Verdict:
    """Return whether all leads are .02 or more."""
    return together(*(decide(lead.low > 0 and lead.value >= LEVEL, lead.high < LEVEL) for lead in found))


def is_level(lead: Estimate) -> Verdict:
    """Return whether a lead is level: refuted where its interval is outside of the bounds."""
    return decide(lead.low >= -LEVEL and lead.high <= LEVEL, lead.low > LEVEL or lead.high < -LEVEL)


def level_or_ahead(lead: Estimate) -> Verdict:
    """Return whether a lead is level or above zero."""
    return decide(lead.low >= -LEVEL, lead.high < 0)


def alone_is_enough(*found: Estimate) -> Verdict:
    """Return whether exact parts are level with or behind what one matrix does alone, in one of two ways."""
    return decide(any(lead.high <= LEVEL for lead in found), all(lead.low > 0 for lead in found))


SUMS = {
    "exact parts, their sum": EXACT + SIGNED,
    "to first order": START + SIGNED,
    "with the gradient of the rounded model": END + SIGNED,
    "trapezoid": TRAPEZOID + SIGNED,
}


def sums_of_parts(scores: pd.DataFrame) -> pd.DataFrame:
    """Return sums of parts over all matrices on the texts of the scores, and rank agreements of runs, of every draw."""
    rows = []
    for (model, bits, draw), of in scores.groupby(["model", "bits", "draw"], sort=False):
        values = {score: np.array(each) for score, each in zip(of.score, of["values"], strict=True)}
        sums: dict[str, Any] = {name: values[score].sum() for name, score in SUMS.items()}
        exact = values[EXACT + SIGNED]
        cancelling = np.abs(exact).sum() / abs(exact.sum())
        both = agreement(values[ALONE], values[SET_BACK])[0]
        rows.append({"case": f"{model}, {bits} bits", "draw": draw, **sums, "sizes": cancelling, "agreement": both})
    return pd.DataFrame(rows)


def sums_table() -> Table:
    """Return the table of sums of parts over all matrices."""
    cells = {
        **{name: Cell(name, 3, "+") for name in SUMS},
        "sizes of parts by their sum": Cell("sizes", 2),
        "rank agreement of rounded alone and set back": Cell("agreement", 2),
    }
    return Table("scores", ("case",), cells, prepare=sums_of_parts)


def taken_by_score() -> dict[str, Any]:
    """Return how much of the loss by rounding every score's choice takes back."""
    means = means_of_models(frames_of("bits")["losses"])
    rows = {
        score: [round(float(number), 3) for number in estimate(of.taken.to_numpy())[:3]]
        for score, of in means.groupby("score", sort=False)
    }
    return {"mean over bits, budgets and draws": ["share of the loss that is taken back", rows]}
