"""Verdicts on scores of matrices, by the rules of the page, and its tables."""

from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import RESAMPLES, IntervalEstimate, agreement, students_mean
from experiments.bits.scores import (
    ALONE,
    END,
    ERROR,
    EXACT,
    FEW,
    FISHER,
    MEAN_SIZE,
    OUTPUTS,
    ROOT_ERROR,
    ROOT_FISHER,
    SCORES,
    SET_BACK,
    SIGNED,
    SIZE,
    START,
    TRAPEZOID,
)
from experiments.markdown import Fields, cells, table

AT_RANDOM, LEVEL, LEAST = "at random", 0.02, 0.05
"""The name of random choices; the largest lead that is level; the smallest loss by rounding that is judged, in nats."""
FINER = "8"
OURS = EXACT + SIZE
JUDGED: tuple[str, ...] = (
    START + SIZE,
    TRAPEZOID + SIZE,
    EXACT + SIGNED,
    EXACT + MEAN_SIZE,
    FISHER,
    ROOT_FISHER,
    ERROR,
    ROOT_ERROR,
    OUTPUTS,
    ALONE,
    SET_BACK,
    AT_RANDOM,
)
"""The scores over which a lead has a verdict."""

Found = dict[str, Any]
Shares = Float[np.ndarray, "draws texts"]
"""Of every draw and fresh text, the loss that is taken back, as a share of the mean loss by rounding."""


def taken_back(results: Found, name: str, bits: int, share: float) -> dict[str, Shares] | None:
    """Return the loss that every score's choice takes back; nothing where rounding costs too little to judge."""
    of = results["pieces"][f"{name}, references"]
    low, high = np.array(of[str(bits)]), np.array(of[FINER])
    gap = float((low - high).mean())
    if gap < LEAST:
        return None
    pieces = [results["pieces"][f"{name}, {bits} bits, draw {draw}"] for draw in range(results["draws"])]
    losses = [piece["losses"][str(share)] for piece in pieces]
    return {score: (low - np.array([draw[score] for draw in losses])) / gap for score in (*SCORES, AT_RANDOM)}


def _means(results: Found, bits: tuple[int, ...]) -> dict[str, list[Shares]]:
    """Return of every score, model by model, the mean over bits and budgets."""
    found: dict[str, list[Shares]] = {score: [] for score in (*SCORES, AT_RANDOM)}
    for name in results["settings"]:
        cases = [taken_back(results, name, of, share) for of in bits for share in results["shares"]]
        judged = [case for case in cases if case is not None]
        for score, of_models in found.items():
            if judged:
                of_models.append(np.mean([case[score] for case in judged], 0))
    return found


def estimate(models: list[Shares], comparisons: int = 1) -> IntervalEstimate:
    """Return the mean over models, with an interval from resampling models, and draws and texts of each."""
    random, count = np.random.default_rng(0), len(models)

    def resampled(shares: Shares) -> Float[np.ndarray, "resamples"]:
        draws, texts = (random.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n for n in shares.shape)
        return np.einsum("rd,dt,rt->r", draws, shares, texts)

    # Draws and texts are resampled anew each time that a model is drawn.
    numbers = np.array([[resampled(shares) for shares in models] for _ in models])
    chosen = random.integers(0, count, (count, 1, RESAMPLES))
    means = np.take_along_axis(numbers, chosen, 1).mean((0, 1))
    outside = 0.05 / comparisons
    low, high = np.quantile(means, (outside / 2, 1 - outside / 2))
    return IntervalEstimate(float(np.mean([shares.mean() for shares in models])), float(low), float(high))


def verdict(lead: IntervalEstimate) -> str:
    """Return the verdict on a lead."""
    if max(-lead.low, lead.high) <= LEVEL:
        return "level"
    if lead.low > 0:
        return "ahead" if lead.value >= LEVEL else "ahead by less than stated"
    return "behind" if lead.high < 0 else "undecided"


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages."""
    every = tuple(results["bits"])
    means, models = _means(results, every), list(results["settings"])
    order = sorted(means, key=lambda score: -np.mean([of.mean() for of in means[score]]))
    rows = [[score, estimate(means[score]).written(), *(f"{of.mean():.3f}" for of in means[score])] for score in order]
    of_bits = {bits: _means(results, (bits,)) for bits in every}
    text = ["### The loss that is taken back", "", *table(["score", "all", *models], rows), ""]
    text += [f"### Leads of {OURS}", "", *_leads(means, of_bits, models), ""]
    text += ["### Afterwards: further leads", "", *_further(means, of_bits, models), ""]
    text += ["### By bits and budget", "", *_cases(results, order), ""]
    text += ["### By model and bits", "", *_models(results, order), ""]
    text += ["### Losses on fresh text", "", *_references(results), ""]
    text += ["### Parts of the loss by rounding", "", *_sums(results), ""]
    text += [f"### Agreement with {OURS}", "", *_agreements(results), ""]
    whole = "\n".join(text)
    return {"tables": whole, **cells(whole)}


def _leads(means: dict[str, list[Shares]], of_bits: dict[int, dict[str, list[Shares]]], models: list[str]) -> list[str]:
    rows = [[score, *_lead(OURS, score, means, of_bits)] for score in JUDGED]
    return table(["before", "lead", "verdict", *(f"{bits} bits" for bits in of_bits), *models], rows)


def _further(
    means: dict[str, list[Shares]], of_bits: dict[int, dict[str, list[Shares]]], models: list[str]
) -> list[str]:
    """Return leads that were asked for when the results were seen, by the same rules."""
    pairs = [(OURS, END + SIZE), (EXACT + SIGNED, END + SIGNED), (OURS, START + MEAN_SIZE)]
    pairs += [(EXACT + FEW, ALONE), (EXACT + FEW, SET_BACK)]
    rows = [[f"{first}, before {second}", *_lead(first, second, means, of_bits)] for first, second in pairs]
    return table(["lead", "by", "verdict", *(f"{bits} bits" for bits in of_bits), *models], rows)


def _lead(
    first: str, second: str, means: dict[str, list[Shares]], of_bits: dict[int, dict[str, list[Shares]]]
) -> list[str]:
    """Return a lead with its interval, its verdict, and the same by bits and by model."""

    def lead(of: dict[str, list[Shares]]) -> list[Shares]:
        return [a - b for a, b in zip(of[first], of[second], strict=True)]

    found = estimate(lead(means), len(JUDGED))
    alone = [f"{of.mean():+.3f}" for of in lead(means)]
    by_bits = [f"{np.mean([of.mean() for of in lead(each)]):+.3f}" for each in of_bits.values()]
    agreed = len({number[0] for number in by_bits}) == 1
    return [found.written(3, "+"), verdict(found) if agreed else "undecided", *by_bits, *alone]


def _models(results: Found, order: list[str]) -> list[str]:
    """Return what every score takes back of each model's loss, for each number of bits, the mean over budgets."""
    cases = {}
    for name in results["settings"]:
        for bits in results["bits"]:
            of_shares = [taken_back(results, name, bits, share) for share in results["shares"]]
            cases[f"{name}, {bits} bits"] = [of for of in of_shares if of is not None]
    judged = {name: of for name, of in cases.items() if of}
    rows = [
        [score, *(f"{np.mean([of[score].mean() for of in each]):.3f}" for each in judged.values())] for score in order
    ]
    return table(["score", *judged], rows)


def _cases(results: Found, order: list[str]) -> list[str]:
    cases = [(bits, share) for bits in results["bits"] for share in results["shares"]]
    found = [[taken_back(results, name, *case) for name in results["settings"]] for case in cases]
    rows = [
        [score, *(f"{np.mean([of[score].mean() for of in case if of is not None]):.3f}" for case in found)]
        for score in order
    ]
    return table(["score", *(f"{bits} bits, {share:.0%}" for bits, share in cases)], rows)


def _references(results: Found) -> list[str]:
    keys = ("original", FINER, *map(str, sorted(results["bits"], reverse=True)))
    names = {key: f"{key} bits" if key.isdigit() else key for key in keys}
    losses = {name: results["pieces"][f"{name}, references"] for name in results["settings"]}
    rows = [[name, *(f"{np.mean(of[key]):.4f}" for key in keys)] for name, of in losses.items()]
    return table(["model", *names.values()], rows)


def _sums(results: Found) -> list[str]:
    """Return sums of parts over all matrices on the texts of the scores, exact and to first order, over draws."""
    rows = []
    for name in results["settings"]:
        for bits in results["bits"]:
            draws = [
                results["pieces"][f"{name}, {bits} bits, draw {draw}"]["scores"] for draw in range(results["draws"])
            ]
            every = [{score: np.array(of[score]) for score in of} for of in draws]
            sums = [[of[kind + SIGNED].sum() for of in every] for kind in (EXACT, START, END, TRAPEZOID)]
            cancelling = [np.abs(of[EXACT + SIGNED]).sum() / abs(of[EXACT + SIGNED].sum()) for of in every]
            pairs = ((EXACT + SIGNED, ALONE), (EXACT + SIGNED, SET_BACK), (ALONE, SET_BACK))
            agreements = [[agreement(of[a], of[b])[0] for of in every] for a, b in pairs]
            cells = [students_mean(np.array(of)).written(3, "+") for of in sums]
            cells += [students_mean(np.array(of)).written(2) for of in (cancelling, *agreements)]
            rows.append([f"{name}, {bits} bits", *cells])
    heads = ["exact parts, their sum", "to first order", "with the gradient of the rounded model", "trapezoid"]
    heads += ["sizes of parts by their sum", "rank agreement of part and rounded alone", "of part and set back"]
    return table(["model", *heads, "of rounded alone and set back"], rows)


def _agreements(results: Found) -> list[str]:
    """Return the rank agreement of every score with the size of the exact part, a mean over draws and bits."""

    def of_model(name: str, score: str) -> float:
        every = [
            results["pieces"][f"{name}, {bits} bits, draw {draw}"]["scores"]
            for bits in results["bits"]
            for draw in range(results["draws"])
        ]
        return float(np.mean([agreement(np.array(of[OURS]), np.array(of[score]))[0] for of in every]))

    rows = [[score, *(f"{of_model(name, score):+.2f}" for name in results["settings"])] for score in SCORES]
    return table(["score", *results["settings"]], rows)
