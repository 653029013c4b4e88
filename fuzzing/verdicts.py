"""Answers whose verdict is compared with an independent evaluation: how many of each verdict, and those that are wrong.

A *wrong hold* is an answer whose verdict is "holds" although the sum of its parts is further from an independent
evaluation than its tolerance.  The answer speaks of the value that the forward pass computes, which is rounded itself:
where that alone is off, a hold is counted as one of a *rounded value*.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from duat_jax.forms.completeness import FAILS, HOLDS, INCONCLUSIVE, Completeness

SLACK = 3
"""How often the rounding of a few evaluations is added to the tolerance: the analysed one is compiled otherwise."""

REFUSED, ROUNDED = "refused", "holds beside a rounded value"
VERDICTS = (HOLDS, INCONCLUSIVE, FAILS, REFUSED)


class Wrong(NamedTuple):
    """A wrong hold.

    Args:
        case: the kind of case, what it was drawn from, and the question.
        number: which of the batch.
        sum: the sum of its parts.
        tolerance: its tolerance.
        reference: the independent evaluation.
    """

    case: str
    number: int
    sum: float
    tolerance: float
    reference: float


class Tally:
    """The number of answers of each verdict, and the wrong ones."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys((*VERDICTS, ROUNDED), 0)
        self.wrong: list[Wrong] = []

    @property
    def cases(self) -> int:
        """The number of all answers and refusals."""
        return sum(self.counts[verdict] for verdict in VERDICTS)

    def refuse(self, cases: int = 1) -> None:
        """Count refusals.

        Args:
            cases: their number.
        """
        self.counts[REFUSED] += cases

    def judge(self, case: str, completeness: Completeness, reference: Any, rounding: Callable[[], Any]) -> None:
        """Count answers of one question by their verdicts, and those that are wrong.

        Args:
            case: what the answers are of.
            completeness: theirs, entry by entry.
            reference: the independent evaluation of each, in a longer dtype.
            rounding: computes how far rounding in the dtype of the answers carries each; asked if one is further off.
        """
        found = completeness.on_host()
        total, tolerance = (np.atleast_1d(np.asarray(a)).astype(np.longdouble) for a in (found.sum, found.tolerance))
        within, holds = np.atleast_1d(found.within), np.atleast_1d(found.holds)
        cancels = found.cancels is not None
        self.counts[HOLDS] += int(holds.sum())
        self.counts[INCONCLUSIVE] += int((within & ~holds).sum()) + cancels * int((~within).sum())
        self.counts[FAILS] += (not cancels) * int((~within).sum())
        with np.errstate(invalid="ignore"):
            off = abs(total - reference)
            beyond = holds & ~(off <= tolerance)
            if not beyond.any():
                return
            wrong = beyond & ~(off <= tolerance + SLACK * np.asarray(rounding()))
        self.counts[ROUNDED] += int((beyond & ~wrong).sum())
        references = np.broadcast_to(reference, total.shape)
        self.wrong += [
            Wrong(case, int(i), float(total[i]), float(tolerance[i]), float(references[i]))
            for i in np.flatnonzero(wrong)
        ]


def inputs(seed: int, count: int, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Draw pairs of inputs: common ones, and those at which functions have kinks, ties, zeros and limits.

    Args:
        seed: what decides.
        count: their number.
        shape: of each.
    """
    chance = np.random.default_rng(seed)
    sizes = (count, *(1 for _ in shape))

    def one() -> np.ndarray:
        normal = chance.normal(size=(count, *shape))
        kinds = (
            normal,
            normal * 10 ** chance.uniform(-3, 2, sizes),
            normal * 10 ** chance.uniform(-30, 30, sizes),
            np.round(normal),
            np.round(4 * normal) / 4,
            np.where(chance.random((count, *shape)) < 0.5, 0.0, normal),
            np.broadcast_to(normal.reshape(count, -1)[:, :1].reshape(sizes), normal.shape),
        )
        return np.choose(chance.choice(7, p=(0.3, 0.2, 0.1, 0.15, 0.1, 0.1, 0.05), size=sizes), kinds)

    x, other = one(), one()
    one_entry = np.where(chance.random((count, *shape)) < 1 / x[0].size, other, x)
    pairs = (other, one_entry, x + 1e-3 * other, x * (1 + 1e-7), x, -x, 2 * x)
    return x, np.choose(chance.choice(7, p=(0.4, 0.2, 0.1, 0.1, 0.02, 0.1, 0.08), size=sizes), pairs)
