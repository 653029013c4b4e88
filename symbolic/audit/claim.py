"""A claim of a paper: its printed formula, the checks that decide it, and the resulting finding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Any, NamedTuple

from symbolic.audit.counterexample import Outcome
from symbolic.audit.formula import read
from symbolic.audit.letters import Notation, Statement
from symbolic.audit.notation import THEORY
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.expressions.latex import escaped

_WIDTH = 110  # characters of prose in a line under a formula

PROVED, CHECKED, CITED = "proved", "checked at sizes", "cited"

DEFINED, MISPRINTED = "definition", "definition with a misprint"

READING, FAILS, UNDECIDED = "false as printed, true in a stated reading", "does not hold", "undecided"

VERDICTS = (PROVED, CHECKED, DEFINED, MISPRINTED, CITED, READING, FAILS, UNDECIDED)

Check = Callable[["Claim"], Outcome]


class Checks(NamedTuple):
    """The checks that decide one claim of the tables.

    Args:
        literal: decides what is printed, with every symbol meaning one thing.
        readings: decide the other fair readings, in the order of their words.
        correction: decides the correction.
        notation: the expressions that its letters stand for.
    """

    literal: Check
    readings: tuple[Check, ...] = ()
    correction: Check | None = None
    notation: Notation = THEORY


@dataclass(frozen=True)
class Finding:
    """The verdict on one claim, with its reason, its correction and its evidence.

    Args:
        equation: its number, or a name for a claim without a number.
        source: `000`, `001` or `003`: the newest version of the paper, the first, and the second.
        printed: its LaTeX as printed.
        verdict: `proved`; `checked at sizes`, which are named, and not proved for all; `definition`, which the rest of
            the theory uses as it stands; `definition with a misprint`; `cited`, a theorem of others that isn't proved
            here; `false as printed, true in a stated reading`; `does not hold`; or `undecided`.
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
        """The number or the name of the equation, and the version of the paper."""
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

    The checks take their expressions from what is printed, read back by `formula.read`. The check of the correction
    gets the claim with its correction in the place of what is printed.

    Args:
        equation: its number, or a name.
        printed: its LaTeX as printed.
        literal: decides the claim with every symbol meaning one thing.
        source: the version of the paper.
        notation: the expressions that its letters stand for.
        readings: other fair readings, in words that follow "true when", with their checks.
        kind: its verdict if its check holds: `PROVED`; `DEFINED` for a definition, whose check is that the rest of the
            theory uses just that; or `CITED` for a theorem of others.
        unprimed: names that are printed without the prime that they have elsewhere, once for every place.
        remark: a sentence that belongs to it whatever the verdict.
        correct: LaTeX of the smallest correction, or pairs of what is to be replaced in the printed LaTeX and by what.
        correction: decides the correction.
        is_mended: whether the claim is read as its correction.
    """

    equation: str
    printed: str
    literal: Check
    source: str = "000"
    notation: Notation = THEORY
    readings: Mapping[str, Check] = field(default_factory=dict)
    kind: str = PROVED
    unprimed: tuple[str, ...] = ()
    remark: str = ""
    correct: str | tuple[tuple[str, str], ...] = ""
    correction: Check | None = None
    is_mended: bool = False

    @property
    def says(self) -> tuple[Statement, ...]:
        """The printed formula, or the correction of a mended claim, as expressions."""
        if self.is_mended:
            return read(self.corrected, self.notation)
        return read(self.printed, self.notation, self.unprimed)

    @property
    def row(self) -> Statement:
        """The first row of relations that it says."""
        return self.says[0]

    @property
    def mended(self) -> "Claim":
        """The claim with its correction in the place of what is printed."""
        return replace(self, is_mended=True)

    @property
    def corrected(self) -> str:
        """The LaTeX of the smallest correction."""
        if isinstance(self.correct, str):
            return self.correct
        text = self.printed
        for misprint, right in self.correct:
            if misprint not in text:
                raise SymbolicError(f"{self.equation} ({self.source}): {misprint} isn't in what is printed")
            text = text.replace(misprint, right)
        return text

    def run(self, check: Check) -> Outcome:
        """Run a check on the claim; a formula whose shapes don't fit fails it."""
        try:
            return check(self)
        except ShapeMismatch as error:
            return Outcome(False, f"it can't be formed: {error}")

    def decide(self) -> Finding:
        """Run the checks and return the finding."""
        outcome = self.run(self.literal)
        parts = [f"as printed: {outcome.how}"]
        verdict = {True: self.kind, False: FAILS, None: UNDECIDED}[outcome.holds]
        decisive = outcome
        reasons = ["A definition."] if self.kind == DEFINED else []
        for words, check in self.readings.items() if not outcome.holds else ():
            read_so = self.run(check)
            parts.append(f"{words}: {read_so.how}")
            if read_so.holds:
                if outcome.holds is not None:
                    verdict = MISPRINTED if self.kind == DEFINED else READING
                decisive = read_so
                reasons.append(f"{'It fits' if self.kind == DEFINED else 'True'} when {words}.")
                break
            if read_so.holds is None:
                verdict = UNDECIDED
        if decisive.holds and decisive.sizes and self.kind == PROVED:
            verdict = CHECKED if decisive is outcome else verdict
            reasons.append(f"Checked at {decisive.sizes}; not proved in general.")
        if self.remark:
            reasons.append(self.remark)
        if self.unprimed:
            reasons.append(f"Printed without a prime: {', '.join(map(_braced, dict.fromkeys(self.unprimed)))}.")
        corrected = ""
        if not outcome.holds and self.correction is not None:
            proof, corrected = self.mended.run(self.correction), self.corrected
            parts.append(f"corrected: {proof.how}" if proof.holds else f"the correction isn't proved: {proof.how}")
        reason, evidence = " ".join(reasons) or outcome.how, "; ".join(parts)
        return Finding(self.equation, self.source, self.printed, verdict, reason, corrected, evidence)


def joined(fields: Mapping[str, Any], checks: Checks) -> Claim:
    """Return a claim of the tables with the checks that decide it."""
    readings = dict(zip(fields["readings"], checks.readings, strict=True))
    decided_by = {"literal": checks.literal, "correction": checks.correction, "notation": checks.notation}
    return Claim(**{**fields, **decided_by, "readings": readings})
