"""Do Transformers make at least twice the error on new functions without the residual path?

Transformers of two and of six layers, of width 32 with 128 hidden units, are trained with the residual path and
without it, each layer then being FFN(N₂(A(N₁ x))); the parameters are the same.  Tasks are linear functions of which
training has 64 and tests have new ones, and 16 functions that prompts name, of which none is new.  Norms or none and
the rates .001, .003, .01 and .03 are tuned for each with half of the steps and one seed; Adam, 4,000 steps of 64 new
examples, five seeds.

Ratios of errors without and with the residual path are means of logarithms over seeds; errors below .02 count as .02.
The opposite view says that the residual path makes deep networks trainable and has no other part in generalizing: it
compares the error on new functions over that on functions of training, both after 16 demonstrations, where a network
without the path learns its functions of training at all, with an error of at most .4.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import numpy as np

from experiments.estimate import Estimate
from experiments.generalization.networks import TRANSFORMER, WITHOUT_RESIDUAL, Network, Sizes
from experiments.generalization.plan import BATCH, NORMS, SEEDS, TESTED, choices, trained, tuning
from experiments.generalization.ratios import CONFIRMED, FLOOR, REFUTED, geometric
from experiments.generalization.tasks import Demonstrated, Examples, Named
from experiments.generalization.training import error, outputs
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import Verdict, decide

RATES, STEPS = (1e-3, 3e-3, 1e-2, 3e-2), 4000
KINDS, DEPTHS, WIDTH = (TRANSFORMER, WITHOUT_RESIDUAL), (2, 6), 32
POOL, SIXTEEN = "linear, 64 in training", "16 functions"
TASKS: dict[str, Demonstrated | Named] = {
    POOL: Demonstrated(family="linear", demonstrations=16, pool=64),
    SIXTEEN: Named(digits=2, base=4),
}
LEARNED = 0.4
"""The largest error on functions of training at which a network counts as one that has learned the task."""


def sizes_of(kind: str, layers: int, norms: bool) -> Sizes:
    """Return the sizes of a network; with and without residual path the parameters are the same."""
    return Sizes(kind=kind, norms=norms, layers=layers, features=WIDTH, neurons=4 * WIDTH)


def _error(network: Network, examples: Examples) -> float:
    return float(error(outputs(network, examples), examples))


def measured(task: Any, sizes: Sizes, network: Network) -> Row:
    """Return the error on new functions after all demonstrations, and that on functions of training."""
    key = jax.random.key(SEEDS + 2)
    if isinstance(task, Named):
        return {"trained": _error(network, task.draw(key, TESTED))}
    drawn = task.draw(key, TESTED * task.demonstrations)
    whole = np.flatnonzero(np.asarray(drawn.mask).all(-1))
    of_training = jax.tree.map(lambda leaf: leaf[whole], drawn)
    new = task.draw_with(key, TESTED, task.demonstrations)
    return {"trained": _error(network, of_training), "new": _error(network, new)}


def measure() -> Measurements:
    """Yield trainings of both tasks at both depths, with the residual path and without it."""
    conditions = [(name, layers, kind) for name in TASKS for layers in DEPTHS for kind in KINDS]
    keys: list[dict[str, Any]] = [dict(zip(("task", "layers", "network"), of, strict=True)) for of in conditions]
    chosen = yield from choices(
        [
            tuning(key, TASKS[name], partial(sizes_of, kind, layers), NORMS, STEPS, RATES)
            for key, (name, layers, kind) in zip(keys, conditions, strict=True)
        ]
    )
    yield [
        Piece(
            "networks",
            key,
            partial(trained, TASKS[name], sizes_of(kind, layers, of.norms), STEPS, of.rate, SEEDS, measured),
        )
        for key, (name, layers, kind), of in zip(keys, conditions, chosen, strict=True)
    ]


def logs(layers: int, column: str, frames: Frames, task: str = POOL) -> np.ndarray:
    """Return the logarithm of an error without the residual path over that with it, of every seed."""
    of = frames["networks"][(frames["networks"].task == task) & (frames["networks"].layers == layers)]
    with_path, without = (np.maximum(of[of.network == kind][column].to_numpy(), FLOOR) for kind in KINDS)
    return np.log(without / with_path)


def new_functions(layers: int, frames: Frames) -> Estimate:
    """Return by how much the error on new functions is larger without the path."""
    return geometric(logs(layers, "new", frames))


def relative(layers: int, frames: Frames) -> Estimate:
    """Return by how much the error on new functions is larger, over that on functions of training."""
    return geometric(logs(layers, "new", frames) - logs(layers, "trained", frames))


def not_learned(layers: int, frames: Frames) -> np.ndarray:
    """Return the error on functions of training without the path."""
    of = frames["networks"]
    return of[(of.task == POOL) & (of.layers == layers) & (of.network == WITHOUT_RESIDUAL)].trained.to_numpy()


def much_worse(*ratios: Estimate) -> Verdict:
    """Return whether all errors are at least twice as large."""
    return decide(all(of.low >= CONFIRMED for of in ratios), any(of.high <= REFUTED for of in ratios))


def trainable_alone(new: Estimate, *relative_and_trained: Estimate) -> Verdict:
    """Return whether no ratio is larger without the path: of new functions, and relative to those of training."""
    depths = len(relative_and_trained) // 2
    relatives, errors = relative_and_trained[:depths], relative_and_trained[depths:]
    counting = [of for of, at in zip(relatives, errors, strict=True) if at.value <= LEARNED]
    refuted = any(of.low >= CONFIRMED for of in (new, *counting))
    return decide(len(counting) == depths and all(of.high <= REFUTED for of in (new, *counting)), refuted)


NEW, RELATIVE, NOT_LEARNED = (
    [Measure(f"{what}, {layers} layers", partial(values, layers), digits) for layers in DEPTHS]
    for what, values, digits in (
        ("error without over with the path", new_functions, 2),
        ("the same relative to functions of training", relative, 2),
        ("error on functions of training without the path", not_learned, 3),
    )
)
ERRORS, RATIOS = "Errors with and without the residual path", "Errors without over with the residual path"


def of_layers(ratio: Callable[[int, Frames], Estimate]) -> Cell:
    """Return the cell of a ratio at the depth of a table's row."""
    return Cell(lambda rows: ratio(int(rows.layers.iloc[0]), {"networks": rows}), 2)


STUDY = Study(
    protocol=__doc__,
    page="generalization",
    claim='generalization is "attributed to their MHA modules and residual operation" (Section 5)',
    unit="seeds",
    stated="before the run",
    predictions=(
        Prediction(
            "without the residual path the error on new functions is at least twice as large, at both depths",
            "confirmed if both whole intervals are at least 2, refuted if one is at most 1.2",
            tuple(NEW),
            much_worse,
        ),
        Prediction(
            "the opposite view: relative to the error on functions of training that on new ones isn't larger at either"
            " depth, and at two layers the error on new functions is hardly larger",
            "confirmed if all three whole intervals are at most 1.2, refuted if one is at least 2; a depth at which the"
            " error on functions of training is above .4 says nothing",
            (NEW[0], *RELATIVE, *NOT_LEARNED),
            trainable_alone,
        ),
    ),
    control=RELATIVE[0],
    headline="Without the residual path two layers make {outcome} times the error on new functions, {control} times"
    f" relative to those of training; six layers {{{RATIOS} / 6 / new functions}} times ({{n}} seeds).",
    against=f"Six layers without the path hardly learn: their error on 16 named functions is {{{ERRORS} / 16"
    f" functions, 6, {WITHOUT_RESIDUAL} / functions of training}}.",
    limits="Two tasks, two depths, one scale of initial weights.",
    tables={
        RATIOS: Table(
            "networks",
            ("layers",),
            {
                "new functions": of_layers(new_functions),
                "relative to functions of training": of_layers(relative),
                "16 named functions": of_layers(
                    lambda layers, frames: geometric(logs(layers, "trained", frames, SIXTEEN))
                ),
            },
        ),
        ERRORS: Table(
            "networks",
            ("task", "layers", "network"),
            {
                "functions of training": Cell("trained"),
                "new functions": Cell("new"),
                "norms": Cell(lambda rows: "yes" if rows.norms.iloc[0] else "no"),
                "rate": Cell(lambda rows: f"{rows.rate.iloc[0]:g}"),
            },
        ),
    },
    measure=measure,
    settings={"tasks": {name: asdict(task) for name, task in TASKS.items()}, "depths": DEPTHS, "width": WIDTH}
    | {"rates": RATES, "steps": STEPS, "batch": BATCH, "seeds": SEEDS, "tested": TESTED},
    parallel=True,
)
