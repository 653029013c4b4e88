"""An attribution method: a rule that scores units, its formula, and its source; and the sources."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Rule = TypeVar("Rule")


@dataclass(frozen=True)
class AttributionMethod(Generic[Rule]):
    """A rule that scores units, with what a table says of it.

    Args:
        rule: computes the scores.
        score: the formula of a score, in Markdown.
        source: the work that it comes from.
        of_change: whether it multiplies by the change from a reference input, and so needs one.
        of_readout: whether it is of the number's read-out at the text, held, which is affine, and not of the number.
    """

    rule: Rule
    score: str
    source: str
    of_change: bool = True
    of_readout: bool = False


SECANT = "`duat.secant`"
COLLAPSE = "`duat.collapse`"
CLOSED_FORM = "Wang & Li, Eq. 11"
INTEGRATED = "Sundararajan et al., *Axiomatic Attribution for Deep Networks*, 2017"
PATCHING = "Syed et al., *Attribution Patching Outperforms Automated Circuit Discovery*, 2023"
FAITHFULNESS = "Hanna et al., *Have Faith in Faithfulness*, 2024"
SMOOTHED = "Smilkov et al., *SmoothGrad: removing noise by adding noise*, 2017"
ROLLOUT = "Abnar & Zuidema, *Quantifying Attention Flow in Transformers*, 2020, Eq. 1"
TIMES_INPUT = "Shrikumar et al., *Not Just a Black Box*, 2016"
