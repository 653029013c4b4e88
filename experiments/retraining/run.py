"""Is the exact ledger level with first order in forecasting a training without some examples?

A Transformer (two layers, 28,832 weights) and a perceptron (eight bytes to the next, 22,592 weights) predict the next
byte.  They read 64 texts of 24 bytes in 192 steps of 16, by gradient descent, with momentum and by Adam, each with
three learning rates and five seeds: 75 trainings.  The forecast numbers are the losses of eight held-out texts.

**Truth.** Training again from the same weights, in the same steps and order, with the losses of the removed examples
times zero: 200 random halves, and 50 times six of the 64.  *Floor*: how far a repeated training with all examples ends
from the first one.

**Scores.** The parts of examples by the exact ledger, with one secant for the whole run, for every 13 steps and for
every step; the same way back through the optimiser with the gradient at the beginning of each segment (*first order*)
and with the mean of those at both ends (*trapezoid*); the gradient after all; the derivative through the training.
Controls: the exact ledger of the other targets, the last step that reads an example, alike bytes.  A ridge regression
of the truth on what was removed, fitted to 150 of the halves and tested on the other 50, estimates what scores that add
up can reach.

**Left out.** TracIn at every 13th step, product and cosine of gradients after all, an influence function, and the size
of an example's gradient were measured too, with gradients of 64 texts at once, which JAX 0.10.2 compiles wrongly in
Transformers.  In the four trainings that were measured again with right ones the influence function is ahead of the
exact ledger without a half.

**Measures.** For each target the rank correlation of forecast and truth over every 50 subsets; the mean over these,
targets, groups and rates is a seed's number.  Stated before the run; the sentence on the floor was added when 60 of the
75 trainings were measured and not looked at.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jaxtyping import Float

from experiments.estimate import Estimate, ratio
from experiments.retraining.forecasts import FEW, FOLD, HALVES, RIDGE, agreements
from experiments.retraining.methods import (
    DERIVATIVE,
    EXACT,
    METHODS,
    OTHERS,
    ROOT,
    SEGMENTS,
    START,
    TRAPEZOID,
    scores_of,
)
from experiments.retraining.networks import (
    BATCH,
    EXAMPLES,
    PERCEPTRON,
    STEPS,
    TARGETS,
    TOKENS,
    TRANSFORMER,
    Optimiser,
    make_training,
    path_of,
    retrained,
)
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, of_units, rows_of
from experiments.verdict import Verdict, above, below, decide, every

SEEDS = range(5, 10)
REMOVED = {HALVES: (200, EXAMPLES // 2), FEW: (FOLD, 6)}
"""The number of subsets of each kind, and of the examples that each leaves out."""
LARGE = 1e3
"""The largest size of losses and scores; it stands for the loss of a training that ended without a finite one."""
LEVEL = 0.05
"""The largest difference of two rank correlations that counts as level."""


class Group(NamedTuple):
    """Trainings that differ in their learning rate.

    Args:
        network: the kind of network.
        optimiser: the optimiser of a rate.
        rates: the rates.
    """

    network: str
    optimiser: Optimiser
    rates: tuple[float, ...]


_momentum, _adam = partial(optax.sgd, momentum=0.9), partial(optax.adam, eps_root=1e-12)
GROUPS = {
    "Transformer, gradient descent": Group(TRANSFORMER, optax.sgd, (0.03, 0.1, 0.3)),
    "Transformer, momentum": Group(TRANSFORMER, _momentum, (0.01, 0.03, 0.1)),
    "Transformer, Adam": Group(TRANSFORMER, _adam, (0.001, 0.003, 0.01)),
    "perceptron, gradient descent": Group(PERCEPTRON, optax.sgd, (0.3, 1.0, 3.0)),
    "perceptron, Adam": Group(PERCEPTRON, _adam, (0.001, 0.003, 0.01)),
}


def subsets(kind: str, seed: int) -> Float[np.ndarray, "subsets examples"]:
    """Return subsets of the examples: one where an example is kept."""
    count, removed = REMOVED[kind]
    draw = np.random.default_rng([seed, removed])
    kept = np.ones((count, EXAMPLES))
    for row in kept:
        row[draw.choice(EXAMPLES, removed, replace=False)] = 0
    return kept


def train_and_forecast(name: str, rate: float, seed: int) -> tuple[Row, list[Row]]:
    """Return what is kept of one training, and the agreement of every method with retraining."""
    group = GROUPS[name]
    run = make_training(group.network, seed, group.optimiser, rate)
    path = path_of(run)
    before, after = (np.asarray(run.of_targets(path.weights[end])) for end in (0, -1))
    scores = {method: np.asarray(scores_of(run, path, method)) for method in METHODS}
    for method, of in scores.items():
        if method.startswith(EXACT) and not np.allclose(of.sum(1), after - before, atol=1e-3 + 1e-4 * np.abs(of).sum()):
            raise AssertionError(f"{method}: parts sum to {of.sum(1)} where the losses change by {after - before}")
    kept = {kind: subsets(kind, seed) for kind in REMOVED}
    (again,) = finite(retrained(run, jnp.ones((1, EXAMPLES))))
    changes = {kind: finite(retrained(run, jnp.asarray(of, jnp.float32))) - again for kind, of in kept.items()}
    losses = finite(path.losses)
    training = {
        "first": losses[0],
        "largest": losses.max(),
        "last": losses[-1],
        "before": finite(before).mean(),
        "after": finite(after).mean(),
        "floor": np.abs(again - finite(after)).max(),
        "moved": np.abs(changes[FEW]).mean(),
    }
    return training, agreements(changes, {method: finite(of, nan=0.0) for method, of in scores.items()}, kept)


def finite(values: Any, nan: float = LARGE) -> np.ndarray:
    """Return numbers, none of them larger than `LARGE`."""
    numbers = np.nan_to_num(np.asarray(values, np.float64), nan=nan, posinf=LARGE, neginf=-LARGE)
    return np.clip(numbers, -LARGE, LARGE)


def measure() -> Measurements:
    """Yield every training, all groups of one seed before the next seed."""
    once = cache(train_and_forecast)
    for seed in SEEDS:
        for name, group in GROUPS.items():
            for rate in group.rates:
                keys = {"group": name, "rate": rate, "seed": seed}
                yield Piece("trainings", keys, lambda of=(name, rate, seed): once(*of)[0])
                yield Piece("agreements", keys, lambda of=(name, rate, seed): once(*of)[1])


Chosen = Callable[[pd.DataFrame], pd.DataFrame]
"""Which trainings count."""


def largest_rates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the trainings with the largest rate of their group."""
    return rows[rows.rate == rows.groupby("group").rate.transform("max")]


def with_gradient_descent(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the trainings by gradient descent."""
    return rows[rows.group.str.endswith("gradient descent")]


def of_seeds(frames: Frames, method: str, removed: str, chosen: Chosen = pd.DataFrame) -> pd.Series:
    """Return a method's mean rank correlation of every seed, in all trainings or in those that are chosen."""
    rows = rows_of(chosen(frames["agreements"]), method=method, removed=removed)
    return of_units(rows, "agreement", "seed")


def lead(first: str, other: str, removed: str, chosen: Chosen = pd.DataFrame) -> Measure:
    """Return the measure of how far a method is ahead of another one."""
    return Measure(
        f"lead without {removed}",
        lambda frames: of_seeds(frames, first, removed, chosen) - of_seeds(frames, other, removed, chosen),
        sign="+",
    )


def leads(first: str, other: str, chosen: Chosen = pd.DataFrame) -> tuple[Measure, Measure]:
    """Return the leads of a method over another one for both kinds of removal."""
    return lead(first, other, HALVES, chosen), lead(first, other, FEW, chosen)


def level(estimate: Estimate) -> Verdict:
    """Return whether two methods are level: the whole interval of the lead lies within the bound, or outside."""
    within = max(-estimate.low, estimate.high) <= LEVEL
    return decide(within, estimate.low > LEVEL or estimate.high < -LEVEL)


def ahead(estimate: Estimate) -> Verdict:
    """Return whether a method is ahead by the bound or more."""
    return decide(estimate.low > 0 and estimate.value >= LEVEL, estimate.high < LEVEL)


def best_score(network: str, frames: Frames) -> Estimate:
    """Return the best score but derivatives without a half, as a share of the regression's, with Adam."""
    chosen = partial(rows_of, group=f"{network}, Adam")
    measured = frames["agreements"].method.unique()
    others = [method for method in measured if not method.startswith((DERIVATIVE, "control", RIDGE))]
    best = max((of_seeds(frames, method, HALVES, chosen) for method in others), key=lambda of: of.mean())
    return ratio(best, of_seeds(frames, RIDGE, HALVES, chosen))


EXACT_13, START_13, TRAPEZOID_13 = (f"{name}, {SEGMENTS[ROOT]}" for name in (EXACT, START, TRAPEZOID))
PREDICTIONS = (
    Prediction(
        "the exact ledger is level with first order at segments of 13 steps",
        "confirmed if the interval of the lead lies within ±0.05 for both kinds of removal, refuted if outside",
        leads(EXACT_13, START_13),
        every(level),
    ),
    Prediction(
        "the exact ledger is ahead of first order most at the largest rates (the other view)",
        "confirmed if ahead by 0.05 or more with an interval above zero, refuted if the interval lies below 0.05",
        leads(EXACT_13, START_13, largest_rates),
        every(ahead),
    ),
    Prediction(
        "the exact ledger is ahead of the trapezoid (the other view: exactness, and not averaging)",
        "likewise",
        leads(EXACT_13, TRAPEZOID_13),
        every(ahead),
    ),
    Prediction(
        "derivatives through the training are ahead of the exact ledger with gradient descent",
        "likewise",
        leads(DERIVATIVE, EXACT_13, with_gradient_descent),
        every(ahead),
    ),
    Prediction(
        "with Adam no score but derivatives reaches half of what the regression reaches on halves",
        "confirmed if in both networks the interval of the share lies below a half, refuted if above",
        tuple(Measure(f"share, {network}", partial(best_score, network)) for network in (TRANSFORMER, PERCEPTRON)),
        every(below, 0.5),
    ),
    Prediction(
        "the exact ledger is ahead of that of the other targets (control)",
        "confirmed if both intervals lie above zero",
        leads(EXACT_13, OTHERS),
        every(above),
    ),
)


COLUMNS = {"loss at first": "first", "at last": "last", "targets before": "before", "targets after": "after"}


def _table(removed: str) -> Table:
    return Table(
        "agreements",
        ("method",),
        {"rank correlation": Cell("agreement"), "slope": Cell(lambda rows: f"{rows.slope.median():.2f}", 2)},
        unit="seed",
        prepare=lambda rows: rows[rows.removed == removed],
        note="Slopes are medians over trainings, one where a score has the right size.",
    )


STUDY = Study(
    protocol=__doc__,
    page="emergence",
    claim="none: whether exact parts of examples forecast a training without them",
    unit="seeds",
    stated="before the run",
    predictions=PREDICTIONS,
    control=Measure(
        "lead of the exact ledger over that of other targets, without a half", *lead(EXACT_13, OTHERS, HALVES)[1:]
    ),
    headline="Forecasts by the exact ledger of trainings without half of the examples have a rank correlation that is"
    " higher by {outcome} than that of forecasts to first order, and by {control} than that of the ledger of other"
    " targets ({n} seeds).",
    against="A ridge regression on 150 retrainings reaches {Without a half / ridge regression on 150 retrainings / rank"
    " correlation}, the exact ledger {Without a half / exact ledger, 13 steps a segment / rank correlation}.",
    limits="Two tiny networks, short texts and many passes: nothing follows for large models that read a text once. One"
    " order of the steps for each seed. An influence function, which in four trainings was ahead of the exact ledger,"
    " is left out until it is measured in all.",
    tables={
        "Without a half": _table(HALVES),
        "Without six of 64": _table(FEW),
        "The trainings": Table(
            "trainings",
            ("group", "rate"),
            {
                **{heading: Cell(column, 2) for heading, column in COLUMNS.items()},
                "largest floor": Cell(lambda rows: f"{rows.floor.max():.1e}"),
            },
        ),
    },
    measure=measure,
    settings={
        "methods": list(METHODS),
        "removed": REMOVED,
        "seeds": list(SEEDS),
        "sizes": [TOKENS, EXAMPLES, BATCH, STEPS, TARGETS],
    },
)
