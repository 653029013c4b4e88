"""A claim of a paper: what is printed, the checks that decide it, and the finding that they give."""

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from symbolic.audit.counterexample import Outcome
from symbolic.audit.formula import Notation, Statement, read
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.expressions.latex import escaped

_WIDTH = 110  # characters of prose in a line under a formula

PROVED, DEFINED, CITED = "proved", "definition", "cited"

READING, FAILS, UNDECIDED = "holds under a stated reading", "does not hold", "undecided"

Check = Callable[["Claim"], Outcome]


@dataclass(frozen=True)
class Finding:
    """What became of one claim.

    Args:
        equation: its number, or a name for a claim without a number.
        source: `000`, `001` or `003`: the newest version of the paper, the first, and the second.
        printed: its LaTeX as printed.
        verdict: `proved`; `definition`, which the rest of the theory uses as it stands; `cited`, a theorem of others
            that isn't proved here; `holds under a stated reading`; `does not hold`; or `undecided`.
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


def _braced(name: str) -> str:
    """Return a name such as `x_i+1` with braces around its indices."""
    letter, _, indices = name.partition("_")
    return f"{letter}_{{{indices}}}"


@dataclass(frozen=True)
class Claim:
    """One claim of a paper and the checks that decide it; nothing of the verdict is written down.

    The checks take their expressions from what is printed, read back by `formula.read`.

    Args:
        equation: its number, or a name.
        source: the version of the paper.
        printed: its LaTeX as printed.
        notation: what its letters stand for.
        literal: decides the claim with every symbol meaning one thing.
        readings: other fair readings, in words, with their checks.
        kind: what it is if its check holds: `PROVED`; `DEFINED` for a definition, whose check is that the rest of the
            theory uses just that; or `CITED` for a theorem of others.
        unprimed: names that are printed without the prime that they have elsewhere, once for every place.
        remark: a sentence that belongs to it whatever the verdict.
        correct: LaTeX of the smallest correction, or pairs of what is to be replaced in the printed LaTeX and by what.
        correction: decides the correction.
    """

    equation: str
    source: str
    printed: str
    notation: Notation
    literal: Check
    readings: tuple[tuple[str, Check], ...] = ()
    kind: str = PROVED
    unprimed: tuple[str, ...] = ()
    remark: str = ""
    correct: str | tuple[tuple[str, str], ...] = ""
    correction: Check | None = None

    @property
    def says(self) -> tuple[Statement, ...]:
        """What is printed, as expressions."""
        return read(self.printed, self.notation, self.unprimed)

    @property
    def corrected(self) -> str:
        """The LaTeX of the smallest correction.

        Raises:
            SymbolicError: if what is to be replaced isn't printed.
        """
        if isinstance(self.correct, str):
            return self.correct
        text = self.printed
        for misprint, right in self.correct:
            if misprint not in text:
                raise SymbolicError(f"{self.equation} ({self.source}): {misprint} isn't in what is printed")
            text = text.replace(misprint, right)
        return text

    @property
    def mends(self) -> tuple[Statement, ...]:
        """The correction, as expressions."""
        return read(self.corrected, self.notation)

    def _run(self, check: Check) -> Outcome:
        try:
            return check(self)
        except ShapeMismatch as error:
            return Outcome(False, f"it can't be formed: {error}")

    def decide(self) -> Finding:
        """Run the checks and return what they find."""
        outcome = self._run(self.literal)
        parts = [f"as printed: {outcome.how}"]
        verdict = {True: self.kind, False: FAILS, None: UNDECIDED}[outcome.holds]
        reasons = ["A definition."] if self.kind == DEFINED else []
        for words, check in self.readings if not outcome.holds else ():
            read_so = self._run(check)
            parts.append(f"{words}: {read_so.how}")
            if read_so.holds:
                verdict = READING
                reasons.append(f"Reading: {words}.")
                break
            if read_so.holds is None:
                verdict = UNDECIDED
        if self.remark:
            reasons.append(self.remark)
        if self.unprimed:
            reasons.append(f"Printed without a prime: {', '.join(map(_braced, dict.fromkeys(self.unprimed)))}.")
        corrected = ""
        if not outcome.holds and self.correction is not None:
            proof = self._run(self.correction)
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
