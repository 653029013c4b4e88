"""Verdicts on scores of matrices, by the rules of the page, and its tables."""

from typing import Any

import numpy as np

from duat_jax.evaluation.statistics import Estimate, agreement, bootstrap_of_groups
from experiments.bits.scores import SCORES, SIGNED, SIZE_OF_PART
from experiments.pages import Fields, cells, table

RANDOM, LEVEL = "at random", 0.02
FINER = "8"

Found = dict[str, Any]


def recovered(results: Found, name: str, bits: int, share: float) -> dict[str, np.ndarray]:
    """Return of every draw the share of the loss by rounding that a score's choice takes back on fresh text.

    Args:
        results: what was kept.
        name: the model.
        bits: of a weight.
        share: the budget.
    """
    pieces = results["pieces"]
    of = pieces[f"{name}, references"]
    low, high = of[str(bits)], of[FINER]
    draws = [pieces[f"{name}, {bits} bits, draw {draw}"]["losses"][str(share)] for draw in range(results["draws"])]
    losses = {score: np.array([draw[score] for draw in draws]) for score in SCORES}
    losses[RANDOM] = np.array([np.mean(draw["random"]) for draw in draws])
    return {score: (low - loss) / (low - high) for score, loss in losses.items()}


def _means(results: Found) -> dict[str, list[np.ndarray]]:
    """Return of every score, model by model, the means over bits and budgets of every draw."""
    cases = [(bits, share) for bits in results["bits"] for share in results["shares"]]
    every = [[recovered(results, name, *case) for case in cases] for name in results["settings"]]
    return {score: [np.mean([of[score] for of in model], 0) for model in every] for score in (*SCORES, RANDOM)}


def _verdict(lead: Estimate) -> str:
    if lead.low > 0:
        return "ahead" if lead.value >= LEVEL else "ahead by less than stated"
    if lead.high < 0:
        return "behind"
    return "level" if max(-lead.low, lead.high) <= LEVEL else "undecided"


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: what was kept.
    """
    means, models = _means(results), list(results["settings"])
    order = sorted(means, key=lambda score: -np.mean([of.mean() for of in means[score]]))
    rows, leads = [], list[list[str]]()
    for score in order:
        own = [f"{of.mean():.3f}" for of in means[score]]
        lead = bootstrap_of_groups([a - b for a, b in zip(means[SIZE_OF_PART], means[score], strict=True)])
        rows.append([score, bootstrap_of_groups(means[score]).written(), *own])
        leads.append([score, lead.written(3, "+"), _verdict(lead)])
    text = ["### The loss that is taken back", "", *table(["score", "all", *models], rows), ""]
    text += [f"### Leads of the {SIZE_OF_PART}", "", *table(["before", "lead", "verdict"], leads), ""]
    text += ["### By bits and budget", "", *_cases(results, order), ""]
    text += ["### Losses on fresh text", "", *_references(results), ""]
    text += ["### Agreement with the signed part", "", *_agreements(results), ""]
    whole = "\n".join(text)
    return {"tables": whole, **cells(whole)}


def _cases(results: Found, order: list[str]) -> list[str]:
    cases = [(bits, share) for bits in results["bits"] for share in results["shares"]]
    found = [[recovered(results, name, *case) for name in results["settings"]] for case in cases]
    rows = [[score, *(f"{np.mean([of[score].mean() for of in case]):.3f}" for case in found)] for score in order]
    return table(["score", *(f"{bits} bits, {share:.0%}" for bits, share in cases)], rows)


def _references(results: Found) -> list[str]:
    keys = ("original", FINER, *map(str, sorted(results["bits"], reverse=True)))
    names = {key: f"{key} bits" if key.isdigit() else key for key in keys}
    rows = [
        [name, *(f"{results['pieces'][f'{name}, references'][key]:.4f}" for key in keys)]
        for name in results["settings"]
    ]
    return table(["model", *names.values()], rows)


def _agreements(results: Found) -> list[str]:
    """Return the rank agreement of every score with the signed part, a mean over draws and bits."""

    def of_model(name: str, score: str) -> float:
        pairs = [
            results["pieces"][f"{name}, {bits} bits, draw {draw}"]["scores"]
            for bits in results["bits"]
            for draw in range(results["draws"])
        ]
        return float(np.mean([agreement(np.array(of[SIGNED]), np.array(of[score]))[0] for of in pairs]))

    rows = [[score, *(f"{of_model(name, score):+.2f}" for name in results["settings"])] for score in SCORES]
    return table(["score", *results["settings"]], rows)
