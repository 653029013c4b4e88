"""Ratios of errors on eight numbers, jumps, pointers and of weights from the data, and what decides on them."""

from typing import Any

import numpy as np
import pandas as pd

from experiments.approximation import trainings
from experiments.approximation.tokens import MOST
from experiments.approximation.trainings import POINTERS
from experiments.estimate import Estimate, estimate
from experiments.generalization.networks import TRANSFORMER, WHOLE
from experiments.generalization.ratios import CONFIRMED, FLOOR, REFUTED, geometric
from experiments.table import Frames
from experiments.verdict import Verdict, decide

FAR, LEARNED = 0.05, 0.8
"""The share of points with an error above one half that a network is to be below, and the error above which one counts
as not having learned pointers."""
SUM = WHOLE[0]
DEEPEST = TRANSFORMER, 4


def of_network(frames: Frames, task: str, network: str, layers: int = 2, times: int = 1) -> pd.DataFrame:
    """Return the rows of a network at the largest width, one of every seed."""
    rows = frames["networks"]
    rows = rows[(rows.task == task) & (rows.network == network) & (rows.layers == layers) & (rows.times == times)]
    return rows[rows.width == rows.width.max()]


def ratio(rival: Any, own: Any) -> Estimate:
    """Return a rival's error over the own one; of no seeds where all errors are below the floor."""
    above, below = np.maximum(np.asarray(rival), FLOOR), np.maximum(np.asarray(own), FLOOR)
    found = geometric(np.log(above / below))
    return found._replace(n=0) if max(above.max(), below.max()) == FLOOR else found


def sum_over(task: str, frames: Frames) -> Estimate:
    """Return the error of the sum over the Transformer's."""
    return ratio(of_network(frames, task, SUM).error, of_network(frames, task, TRANSFORMER).error)


def best_rival(frames: Frames, task: str) -> str:
    """Return the network without moving weights that has the smallest error."""
    rivals = [kind for kind in frames["networks"].network.unique() if kind != TRANSFORMER]
    known = {kind: of_network(frames, task, kind).error.mean() for kind in rivals}
    return min((kind for kind in known if known[kind] == known[kind]), key=known.__getitem__)


def best_over(task: str, frames: Frames) -> Estimate:
    """Return the error of the best network whose weights don't move over the Transformer's."""
    best = of_network(frames, task, best_rival(frames, task)).error
    return ratio(best, of_network(frames, task, TRANSFORMER).error)


def of_steps(frames: Frames, network: str, layers: int, times: int, steps: int = MOST) -> np.ndarray:
    """Return the error of every seed on pointers."""
    return np.array([of[steps - 1] for of in of_network(frames, POINTERS, network, layers, times).steps])


def deep_over(network: str, layers: int, times: int, frames: Frames) -> Estimate:
    """Return a network's error at four steps over that of the Transformer of four layers."""
    return ratio(of_steps(frames, network, layers, times), of_steps(frames, *DEEPEST, times))


def best_on_pointers(times: int, frames: Frames) -> Estimate:
    """Return the smallest error of a network at four steps."""
    return min((estimate(of_steps(frames, *key, times)) for key in trainings.DEEP), key=lambda error: error.value)


def slope(task: str, network: str, frames: Frames) -> np.ndarray:
    """Return the exponent at which the share of points with an error above one half falls with the parameters."""
    rows = frames["networks"]
    rows = rows[(rows.task == task) & (rows.network == network)]
    sizes = rows.groupby("seed").parameters.agg(list), rows.groupby("seed").far.agg(list)
    least = 1 / trainings.TESTED
    return np.array([np.polyfit(np.log(x), np.log(np.maximum(y, least)), 1)[0] for x, y in zip(*sizes, strict=True)])


def computed_over(task: str, network: str, way: str, frames: Frames) -> Estimate:
    """Return the error of computed weights over that of trained ones."""
    rows = frames["computed"]
    rows = rows[(rows.task == task) & (rows.network == network)]
    return ratio(rows[rows.way == "computed"].error, rows[rows.way == way].error)


def _said(of: Estimate) -> Verdict | None:
    """Return whether a Transformer is ahead, or nothing where all errors are below the floor."""
    return decide(of.low >= CONFIRMED, of.high <= REFUTED) if of.n else None


def of_all(verdicts: list[Verdict | None]) -> Verdict:
    """Return the verdict on a prediction about several functions, by those that have one."""
    known = {verdict for verdict in verdicts if verdict is not None}
    return known.pop() if len(known) == 1 else Verdict.UNDECIDED


def ahead(*ratios: Estimate) -> Verdict:
    """Return whether the Transformer is ahead, for each function."""
    return of_all([_said(of) for of in ratios])


def not_ahead(*ratios: Estimate) -> Verdict:
    """Return whether the Transformer is not ahead, for each function."""
    return {Verdict.CONFIRMED: Verdict.REFUTED, Verdict.REFUTED: Verdict.CONFIRMED}.get(ahead(*ratios), ahead(*ratios))


def near(*numbers: Estimate) -> Verdict:
    """Return whether a network comes near every function: of each its share of far points and the slope."""
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return of_all([decide(falls.high < 0 and far.high < FAR, falls.low > 0 or far.low > FAR) for far, falls in pairs])


def deep_ahead(best: Estimate, layer: Estimate) -> Verdict:
    """Return whether the Transformer of four layers is ahead of the single layer, if any network has learned."""
    return Verdict.UNDECIDED if best.value > LEARNED else ahead(layer)


def shallow_do_as_well(best: Estimate, *rivals: Estimate) -> Verdict:
    """Return whether some network of one layer or without attention isn't behind, if any network has learned."""
    said = [_said(of) for of in rivals]
    return decide(
        best.value <= LEARNED and Verdict.REFUTED in said, best.value <= LEARNED and {*said} == {Verdict.CONFIRMED}
    )


def computable(*ratios: Estimate) -> Verdict:
    """Return whether computed weights are near trained ones in most tasks: over trained, over as long, of each."""
    pairs = list(zip(ratios[::2], ratios[1::2], strict=True))
    passed = sum(over.high <= CONFIRMED and shorter.high < 1 for over, shorter in pairs)
    failed = sum(over.low > CONFIRMED for over, _ in pairs)
    return decide(passed > len(pairs) / 2, failed >= len(pairs) / 2)


def no_substitute(*ratios: Estimate) -> Verdict:
    """Return whether computed weights are more than twice as far off in every task."""
    failed = [of.low > CONFIRMED for of in ratios]
    return decide(all(failed), not any(failed))
