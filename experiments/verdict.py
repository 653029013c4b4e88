"""The four verdicts on a prediction, and what decides them.

One rule for all studies: a question that joins its parts, by *and* or by asking for each of them, is answered *yes* if
all parts are confirmed and *no* as soon as one is refuted (`joined`).  It is answered *partly* (`mixed`) only where its
parts are cases that it doesn't ask for one by one, such as models, tasks or measures, and these differ (`together`), or
where a lead is confirmed and smaller than was stated.
"""

from collections.abc import Callable
from enum import StrEnum

from experiments.estimate import Estimate


class Verdict(StrEnum):
    """A verdict: `mixed` where some cases of a prediction are confirmed and others refuted."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    MIXED = "mixed"
    UNDECIDED = "undecided"

    @property
    def answer(self) -> str:
        """The answer to a question whose yes is the prediction."""
        return {"confirmed": "yes", "refuted": "no", "mixed": "partly", "undecided": "open"}[self]


def decide(confirmed: bool, refuted: bool) -> Verdict:
    """Return the verdict of two conditions; refutation counts first.

    Example:
        >>> decide(confirmed=False, refuted=False).value
        'undecided'
    """
    return Verdict.REFUTED if refuted else Verdict.CONFIRMED if confirmed else Verdict.UNDECIDED


def above(estimate: Estimate, bound: float = 0.0) -> Verdict:
    """Return whether an estimate is above a bound: confirmed or refuted where its whole interval is on one side.

    Example:
        >>> from experiments.estimate import estimate
        >>> above(estimate([1.0, 1.1, 1.2])).value, above(estimate([-1.0, 2.0])).value
        ('confirmed', 'undecided')
    """
    return decide(estimate.low > bound, estimate.high < bound)


def below(estimate: Estimate, bound: float = 0.0) -> Verdict:
    """Return whether an estimate is below a bound."""
    return decide(estimate.high < bound, estimate.low > bound)


def every(rule: Callable[..., Verdict], *bounds: float) -> Callable[..., Verdict]:
    """Return what judges several estimates by one rule, together.

    Example:
        >>> from experiments.estimate import estimate
        >>> every(above, 0.5)(estimate([1.0, 1.1]), estimate([0.0, 0.1])).value
        'undecided'
    """
    return lambda *estimates: together(*(rule(each, *bounds) for each in estimates))


def together(*verdicts: Verdict) -> Verdict:
    """Return the verdict on a prediction about several cases.

    Example:
        >>> together(Verdict.CONFIRMED, Verdict.REFUTED).value, together(Verdict.CONFIRMED, Verdict.UNDECIDED).value
        ('mixed', 'undecided')
    """
    kinds = set(verdicts)
    if len(kinds) == 1:
        return kinds.pop()
    return (
        Verdict.MIXED if kinds >= {Verdict.CONFIRMED, Verdict.REFUTED} or Verdict.MIXED in kinds else Verdict.UNDECIDED
    )


def joined(*verdicts: Verdict) -> Verdict:
    """Return the verdict on a prediction that needs all of its parts.

    Example:
        >>> joined(Verdict.CONFIRMED, Verdict.REFUTED).value, joined(Verdict.CONFIRMED, Verdict.UNDECIDED).value
        ('refuted', 'undecided')
    """
    return Verdict.REFUTED if Verdict.REFUTED in verdicts else together(*verdicts)
