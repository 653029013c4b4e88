"""Verdicts on what a prompt moves, by the rules of the page, and its tables."""

from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap
from experiments.markdown import Fields, cells, sections, table
from experiments.prompts.exchanged import (
    ALL,
    BIASES,
    EVERYWHERE,
    EXCHANGED,
    FACTORS,
    FUNCTION,
    INPUT,
    OTHER,
    OWN,
    PATTERNS,
    SCALES,
    TEXT,
    WEIGHTS,
    WORDS,
)
from experiments.prompts.texts import CONTINUE, SUMMARIZE, TRANSLATE

BETWEEN_TEXTS, WORDING = "texts", "own wording"
JUDGED = (PATTERNS, FACTORS, BIASES)
PAIRS = ((CONTINUE, TRANSLATE), (SUMMARIZE, TRANSLATE), (CONTINUE, SUMMARIZE))
WITH_TRANSLATION = PAIRS[:2]
SMALL, LARGE, HALF = 0.25, 0.5, 0.5
"""Distances as multiples of those between texts: below the one the function stays, above the other it doesn't; and the
share from which on something carries the task."""
AT = {WORDS: "the instruction", TEXT: "the text", EVERYWHERE: "all tokens"}
RUNS = {
    FUNCTION: "all parameters of the other prompt, at the own input",
    INPUT: "the other prompt's input, at all own parameters",
    **{f"{place}, {group}": f"run again, {group} exchanged at {AT[place]}" for place, group in EXCHANGED},
}
"""The kinds of runs, and the names that tables give them."""

Found = dict[str, Any]


def moved(results: Found, pair: tuple[str, str], run: str, *, wording: bool = False) -> Float[np.ndarray, "texts 2"]:
    """Return of every text how far a run goes from its own answer to the other one, and how far the prompt does."""
    found = []
    for own, other in (pair, pair[::-1]):
        plain = results["pieces"][f"{own} to {other}"]
        changed = results["pieces"][f"{own} to {other}, {WORDING}"] if wording else plain
        found.append([[of[OWN] - run_[run], of[OWN] - of[OTHER]] for of, run_ in zip(plain, changed, strict=True)])
    return np.mean(found, 0)


def share(moves: list[Float[np.ndarray, "texts 2"]]) -> IntervalEstimate:
    """Return a share of the way from one prompt's answers to another's, with its interval over texts."""
    return bootstrap(np.mean(moves, 0), lambda means: means[..., 0] / means[..., 1])


def apart(results: Found, first: str, second: str, group: str) -> Float[np.ndarray, "texts"]:
    """Return the distance of a group of parameters between two prompts, text by text."""
    return np.array(results["pieces"][f"apart, {first}, {second}"][group])


def _tasks_and(results: Found, group: str, other: str) -> Float[np.ndarray, "texts 2"]:
    """Return of every text the distance between tasks, one of them translation, and that between others."""
    between = np.mean([apart(results, *pair, group) for pair in WITH_TRANSLATION], 0)
    others = np.mean([apart(results, task, other, group) for task in (CONTINUE, SUMMARIZE, TRANSLATE)], 0)
    return np.stack([between, others], 1)


def _carries(estimate: IntervalEstimate) -> str:
    return "confirmed" if estimate.low > HALF else "refuted" if estimate.high < HALF else "undecided"


def verdicts(results: Found) -> list[list[str]]:
    """Return the verdicts by the rules of the page."""
    leads = {name: bootstrap(_tasks_and(results, name, "wordings"), _lead) for name in JUDGED}
    more = (
        "confirmed"
        if all(lead.low > 0 for lead in leads.values())
        else "refuted"
        if all(lead.high < 0 for lead in leads.values())
        else "undecided"
    )
    ratios = {name: bootstrap(_tasks_and(results, name, BETWEEN_TEXTS), _ratio) for name in JUDGED}
    stays = (
        "confirmed"
        if all(ratio.high < SMALL for ratio in ratios.values())
        else "refuted"
        if any(ratio.low > LARGE for ratio in ratios.values())
        else "undecided"
    )
    rows = [
        ["a task moves more than a wording", more, _by(leads, "+")],
        ["the function stays", stays, _by(ratios)],
    ]
    for place, claim in ((TEXT, "carried at the text"), (WORDS, "carried at the instruction (the opposite view)")):
        of = share([moved(results, pair, f"{place}, {ALL}") for pair in WITH_TRANSLATION])
        rows.append([claim, _carries(of), of.written()])
    of = share([moved(results, pair, f"{EVERYWHERE}, {WEIGHTS}") for pair in WITH_TRANSLATION])
    rows.append(["moving weights are needed", _carries(of), of.written()])
    way = bootstrap(np.mean([moved(results, pair, OTHER)[:, 1] for pair in WITH_TRANSLATION], 0))
    return [row if way.low > 0 else [row[0], "undecided", row[2]] for row in rows]


def _lead(means: np.ndarray) -> Any:
    return means[..., 0] - means[..., 1]


def _ratio(means: np.ndarray) -> Any:
    return means[..., 0] / means[..., 1]


def _by(estimates: dict[str, IntervalEstimate], sign: str = "") -> str:
    return "; ".join(f"{name} {of.written(3, sign)}" for name, of in estimates.items())


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages."""
    parts = {
        "Verdicts on prompts": table(["claim", "verdict", "by"], verdicts(results)),
        "Answers of two prompts": _answers(results),
        "Shares of the way to the other answer": _shares(results),
        "Distances of parameters at the text": _distances(results),
    }
    text = sections(parts)
    return {"tables": text, **cells(text)}


def _answers(results: Found) -> list[str]:
    rows = []
    for first, second in combinations((CONTINUE, SUMMARIZE, TRANSLATE), 2):
        both = [results["pieces"][f"answers, {task} 0"] for task in (first, second)]
        same = sum(a == b for a, b in zip(*both, strict=True))
        way = bootstrap(moved(results, (first, second), OTHER)[:, 1])
        rows.append([f"{first} and {second}", f"{same} of {len(both[0])}", way.written(2)])
    for task in (CONTINUE, SUMMARIZE, TRANSLATE):
        both = [results["pieces"][f"answers, {task} {wording}"] for wording in (0, 1)]
        same = sum(a == b for a, b in zip(*both, strict=True))
        rows.append([f"{task}, both wordings", f"{same} of {len(both[0])}", ""])
    return table(["prompts", "texts with one answer", "the way, in nats a token"], rows)


def _shares(results: Found) -> list[str]:
    rows = []
    for run, name in RUNS.items():
        of_pairs = [share([moved(results, pair, run)]) for pair in PAIRS]
        wording = share([moved(results, pair, run, wording=True) for pair in WITH_TRANSLATION])
        whole = share([moved(results, pair, run) for pair in WITH_TRANSLATION])
        rows.append([name, *(of.written(2) for of in (whole, *of_pairs, wording))])
    pairs = [f"{first} and {second}" for first, second in PAIRS]
    return table(["run", "with translation", *pairs, "the other wording, with translation"], rows)


def _distances(results: Found) -> list[str]:
    rows = []
    for group in (PATTERNS, SCALES, FACTORS, BIASES):
        with_wording, with_texts = (_tasks_and(results, group, other) for other in ("wordings", BETWEEN_TEXTS))
        near = apart(results, CONTINUE, SUMMARIZE, group)
        distances = (with_wording[:, 0], near, with_wording[:, 1], with_texts[:, 1])
        rows.append([group, *(bootstrap(of).written(3) for of in distances)])
    return table(
        ["parameters", "translating and another task", "continuing and summarizing", "wordings", "texts"], rows
    )
