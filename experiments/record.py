"""The record of a study: question, claim, primary outcome, verdict, and the strongest result against it."""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from experiments.markdown import Fields
from experiments.study import Measure, Study
from experiments.table import Frames
from experiments.verdict import Verdict

NAMED = re.compile(r"\{([^{}]+)\}")
UNMEASURED = re.compile(r"\b(not|never|weren't|wasn't|isn't|aren't)\s+(measured|tested|tried)\b", re.IGNORECASE)
ASKED = re.compile(r"(Is|Are|Do|Does|Did|Can|Has|Have)\b.*\?")
"""A question that yes or no answers."""
NEEDED = "{outcome}", "{control}", "{n}"
"""Fields without which a headline misleads."""


class Decided(NamedTuple):
    """A prediction as decided.

    Args:
        prediction: the prediction.
        rule: what decides.
        outcome: the measures with their estimates.
        verdict: the verdict.
    """

    prediction: str
    rule: str
    outcome: str
    verdict: str


class Record(NamedTuple):
    """The record of a study, in sentences whose numbers are from its kept results.

    Args:
        study: its name: `python -m experiments NAME` runs it.
        page: the page of findings.
        question: the question.
        answer: yes, no, partly, or open, by the verdict.
        claim: the papers' claim with its place, or where the question is from.
        unit: of what n are.
        n: the number of units.
        stated: when what decides was stated.
        outcome: the primary outcome, with its interval.
        method: the method of the interval.
        control: what the outcome is compared with.
        verdict: the verdict on the first prediction.
        headline: one sentence.
        short: the headline with one number at most, or nothing.
        against: the strongest result against it.
        limits: what doesn't follow.
        predictions: every prediction with its verdict.
    """

    study: str
    page: str
    question: str
    answer: str
    claim: str
    unit: str
    n: int
    stated: str
    outcome: str
    method: str
    control: str
    verdict: str
    headline: str
    short: str
    against: str
    limits: str
    predictions: tuple[Decided, ...]


def filled_sentence(text: str, fields: Fields) -> str:
    """Return a sentence with its fields in braces filled in.

    Raises:
        KeyError: if it names a field that isn't there.
    """
    return NAMED.sub(lambda name: fields[name[1]], text)


def record_of(name: str, study: Study, frames: Frames, cells: Fields) -> Record:
    """Return the record of a study.

    Args:
        name: the study's name.
        study: the study.
        frames: its kept measurements.
        cells: the cells of its tables by `heading / row / column`.

    Raises:
        KeyError: if a sentence names a field that the study doesn't have.
    """
    estimate = cache(lambda measure: measure.estimate(frames))  # a bootstrap for most

    def written(measure: Measure) -> str:
        return estimate(measure).written(measure.digits, measure.sign)

    outcome = estimate(study.outcome)
    known = {
        "outcome": written(study.outcome),
        "outcome / value": written(study.outcome).partition(" [")[0],
        "control": written(study.control),
        "n": str(outcome.n),
        "unit": study.unit,
        **cells,
    }
    decided = tuple(
        Decided(
            prediction.name,
            prediction.rule,
            "; ".join(f"{measure.name}: {written(measure)}" for measure in prediction.measures),
            prediction.decide(*map(estimate, prediction.measures)),
        )
        for prediction in study.predictions
    )
    sentence = {key: filled_sentence(getattr(study, key), known) for key in ("headline", "short", "against", "limits")}
    return Record(
        study=name,
        page=study.page,
        question=study.question,
        answer=Verdict(decided[0].verdict).answer,
        claim=study.claim,
        unit=study.unit,
        n=outcome.n,
        stated=study.stated,
        outcome=f"{study.outcome.name}: {known['outcome']}",
        method=outcome.method,
        control=f"{study.control.name}: {known['control']}",
        verdict=decided[0].verdict,
        **sentence,
        predictions=decided,
    )


def faults(name: str, study: Study) -> Iterator[str]:
    """Name what makes a headline misleading: no outcome, control or n, a typed number, or a denied measurement."""
    yield from (f"{name}: the headline lacks {field}" for field in NEEDED if field not in study.headline)
    if len(NAMED.findall(study.short)) > 1:
        yield f"{name}: the short headline has more than one number"
    for sentence in (study.headline, study.short, study.against, study.limits):
        if typed := re.findall(r"\d+\.\d+", NAMED.sub("", sentence)):
            yield f"{name}: {', '.join(typed)} is typed, and not from kept results"
    if UNMEASURED.search(study.headline):
        yield f"{name}: a headline says what was measured, not what wasn't"
    if not ASKED.fullmatch(study.question):
        yield f"{name}: the first line of the module is the question, to which a confirmed prediction says yes"
