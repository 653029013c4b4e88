"""A claim of a paper: what is printed, the checks that decide it, and the finding that they give."""

from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from symbolic.expressions.latex import escaped
from symbolic.papers.counterexample import Outcome

_WIDTH = 110  # characters of prose in a line under a formula

HOLDS, READING, FAILS = "holds", "holds under a stated reading", "does not hold"

Check = Callable[[], Outcome]


@dataclass(frozen=True)
class Finding:
    """What became of one claim.

    Args:
        equation: its number, or a name for a claim without a number.
        source: `000`, `001` or `003`: the newest version of the paper, the first, and the second.
        printed: its LaTeX as printed.
        verdict: `holds`, `holds under a stated reading`, or `does not hold`.
        reason: why, in words.
        corrected: LaTeX of the smallest correction; empty if none is needed.
        check: how it was decided, and how the correction was proved.
    """

    equation: str
    source: str
    printed: str
    verdict: str
    reason: str
    corrected: str
    check: str

    @property
    def title(self) -> str:
        """Its equation, or what it is about, and the version of the paper."""
        name = f"Equation {self.equation}" if self.equation.isdigit() else self.equation[0].upper() + self.equation[1:]
        return f"{name}, version {self.source}"

    def __str__(self) -> str:
        rows = [
            f"{self.title}: {self.verdict}",
            f"  printed    {self.printed}",
            f"  why        {self.reason}",
            *([f"  corrected  {self.corrected}"] if self.corrected else []),
            f"  check      {self.check}",
        ]
        return "\n".join(rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_latex_(self) -> str:
        lines = [rf"\textbf{{{escaped(f'{self.title}: {self.verdict}')}}}", self.printed]
        lines += [rf"\text{{{escaped(line)}}}" for line in wrap(self.reason, _WIDTH)]
        if self.corrected:
            lines += [r"\text{corrected:}", self.corrected]
        return "$$\\begin{gathered}\n" + " \\\\\n".join(lines) + "\n\\end{gathered}$$"


@dataclass(frozen=True)
class Claim:
    """One claim of a paper and the checks that decide it; nothing of the verdict is written down.

    Args:
        equation: its number, or a name.
        source: the version of the paper.
        printed: its LaTeX as printed.
        literal: decides the claim with every symbol meaning one thing.
        readings: other fair readings, in words, with their checks.
        definition: whether the claim defines something; its check is then that it is well formed.
        remark: a sentence that belongs to it whatever the verdict.
        corrected: LaTeX of the smallest correction.
        correction: decides the correction.
    """

    equation: str
    source: str
    printed: str
    literal: Check
    readings: tuple[tuple[str, Check], ...] = ()
    definition: bool = False
    remark: str = ""
    corrected: str = ""
    correction: Check | None = field(default=None)

    def decide(self) -> Finding:
        """Run the checks and return what they find."""
        outcome = self.literal()
        parts = [f"as printed: {outcome.how}"]
        verdict, reasons = HOLDS, ["A definition."] if self.definition else []
        if not outcome.holds:
            for words, check in self.readings:
                read = check()
                parts.append(f"{words}: {read.how}")
                if read.holds:
                    verdict = READING
                    reasons.append(f"Reading: {words}.")
                    break
            else:
                verdict = FAILS
        if self.remark:
            reasons.append(self.remark)
        corrected = ""
        if verdict != HOLDS and self.correction is not None:
            proof = self.correction()
            corrected = self.corrected
            parts.append(f"corrected: {proof.how}" if proof.holds else f"the correction isn't proved: {proof.how}")
        return Finding(
            self.equation,
            self.source,
            self.printed,
            verdict,
            " ".join(reasons) or outcome.how,
            corrected,
            "; ".join(parts),
        )
