"""Tables of docs/findings/in-context.md on exact decompositions: changed parameters, layers run again, and copying."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments.in_context.cells import COUNTS, MODELS, TASKS, Pieces, draws, mean, table

SUMS = ("parameters at the part", "attention", "norm scales", "gates and others")
"""The dynamic parameters that move; attention to the part and to other tokens together."""

SIDES = ("after the part", "the part")
PARAMETERS = (
    "direct and one-term inputs",
    *(f"`W'_1`, {side}" for side in SIDES),
    "`q`",
    *(f"`W'_{number}`, {side}" for number in (3, 2) for side in SIDES),
    "`c_j`",
)
BAND = 5
"""Layers that stand in one row."""


def _form(accounts: Sequence[dict[str, Any]]) -> list[str]:
    """Return the closed form's parameters, summed over its terms."""
    sums = []
    for account in accounts:
        form = account["form"]
        inputs = form["inputs"] + form["inner_inputs"]
        sums.append([inputs, *form["path"], form["bias"], *form["outer"], *form["inner"], form["inner_bias"]])
    return [mean(column) for column in zip(*sums, strict=True)]


def columns(accounts: Sequence[dict[str, Any]]) -> list[str]:
    """Return the sums of the parts of changed inputs and of each kind of changed parameters."""
    # A constant that is added to all values, and its image subtracted from the output's bias, changes no run but moves
    # parts from attention to the part to attention to other tokens, so that only their sum is determined.
    inputs = [float(np.sum(account["inputs"])) if account.get("inputs") else 0.0 for account in accounts]
    within, to_part, to_others, *rest = np.array([np.sum(account["layers"], 0) for account in accounts]).T
    return [mean(column) for column in (inputs, within, to_part + to_others, *rest)]


def sizes_of_inputs(accounts: Sequence[dict[str, Any]]) -> list[float]:
    """Return each draw's sum of the absolute parts of changed inputs over tokens, before they cancel."""
    return [float(np.abs(account["inputs"]).sum()) if account.get("inputs") else 0.0 for account in accounts]


def ledgers(pieces: Pieces) -> list[str]:
    """Return the tables of exact decompositions, over dynamic parameters and in the closed form."""
    moved, form, errors = [], [], [0.0]
    for part, label in (("mapping", "mapping: right − exchanged"), ("format", "exchanged − hidden")):
        for task in TASKS:
            for count in COUNTS:
                accounts = draws(pieces, f"ledger, {task}, {count}, {{}}, {part}")
                if len(accounts) < 2:
                    continue
                first = [label, task, str(count), str(len(accounts))]
                flowing = [float(np.sum(account["reads"])) for account in accounts]
                values = [account["difference"] for account in accounts], flowing, sizes_of_inputs(accounts)
                moved.append([*first, *map(mean, values), *columns(accounts)])
                form.append([*first, *_form(accounts)])
                errors += [
                    abs(split["completeness"]["error"]) for account in accounts for split in (account, account["form"])
                ]
    head = ["part", "task", "demonstrations", "draws"]
    names = ("difference", "nothing held: inputs", "held: Σ of moved inputs' sizes", "held: moved inputs", *SUMS)
    return [
        *table([*head, *names], moved),
        *(["The same differences in the parameters of the closed form, summed over its terms:", ""] if form else []),
        *table([*head, *PARAMETERS], form),
        *([f"In float32 the sums miss the differences by at most {max(errors):.0e}.", ""] if moved else []),
    ]


def numbers_of_ledgers(pieces: Pieces) -> dict[str, str]:
    """Return single numbers of these tables for the text, by name."""
    fields = {}
    for task in TASKS:
        if len(accounts := draws(pieces, f"ledger, {task}, 4, {{}}, mapping")) > 1:
            inputs = [float(np.sum(account["inputs"])) for account in accounts]
            fields[f"{task}, moved inputs"] = f"{np.mean(inputs):+.2f}"
            fields[f"{task}, least moved inputs"] = f"{min(inputs):+.2f}"
            fields[f"{task}, largest moved inputs"] = f"{max(inputs):+.2f}"
            parts = zip(SUMS, columns(accounts)[1:], strict=True)
            fields |= {f"{task}, {name}": part.partition(" ")[0] for name, part in parts}
            fields[f"{task}, sizes of moved inputs"] = f"{np.mean(sizes_of_inputs(accounts)):.2f}"
    return fields


def layers_again(pieces: Pieces) -> list[str]:
    """Return the table of the mapping's part by layers, with the model run again, over the draws with both."""
    accounts, again = [], []
    for task in TASKS:
        for draw in range(100):
            names = f"ledger, {task}, 4, {draw}, mapping", f"again, {task}, {draw}"
            if all(name in pieces for name in names):
                accounts.append(pieces[names[0]])
                again.append(pieces[names[1]])
    if len(accounts) < 2:
        return []
    layers, reads = (
        np.array([account["layers"] for account in accounts]),
        np.array([account["reads"] for account in accounts]),
    )
    alone, later = (np.array([account[name] for account in again]) for name in ("alone", "later"))
    rows, last = [], reads.shape[1]
    for first in range(0, last, BAND):
        band = slice(first, first + BAND)
        cells = [layers[:, band].sum((1, 2)), reads[:, band].sum(1), alone[:, band].sum(1), later[:, first]]
        rows.append([f"{first} to {min(first + BAND, last) - 1}", *map(mean, cells)])
    agreement = []
    for name, scores in (("the layer's moved parameters", layers[:, :-1].sum(-1)), ("what the layer reads", reads)):
        correlations = [spearmanr(score, other).statistic for score, other in zip(scores, alone, strict=True)]
        agreement.append(f"{name} {mean(correlations)}")
    head = ["layers", "moved parameters", "what they read, nothing held", "run again: one layer alone, summed"]
    return [
        "### Which layers",
        "",
        f"The mapping's part, 4 demonstrations, the mean over {len(accounts)} draws of all tasks, summed over {BAND}"
        " layers each; the unit is the draw.",
        "",
        *table([*head, "run again: from the first of them on"], rows),
        f"Rank agreement (Spearman) over layers with one layer run again: {'; '.join(agreement)}.",
        "",
    ]


def copying(pieces: Pieces) -> list[str]:
    """Return the tables on repeated random tokens."""
    rows, form, heads, counts = [], [], [], []
    for name in MODELS[:2]:
        accounts = draws(pieces, f"copying, {name}, {{}}")
        if len(accounts) < 2:
            continue
        counts.append(len(accounts))
        losses = [mean([account[time] for account in accounts]) for time in ("first time", "second time")]
        rows.append(
            [
                name,
                str(len(accounts)),
                *losses,
                mean([account["difference"] for account in accounts]),
                *columns(accounts)[2:],
            ]
        )
        form.append([name, *_form(accounts)[1:]])
        for count in (1, 2, 4, 8):
            i = accounts[0]["removed"].index(count)
            heads.append(
                [
                    name,
                    str(count),
                    *(mean([account[field][i] for account in accounts]) for field in ("predicted", "measured")),
                ]
            )
    if not rows:
        return []
    head = ["model", "sequences", "loss, first time", "loss, second time", "gain by seeing the first"]
    return [
        "### Copying",
        "",
        "25 random tokens twice; the part is the first occurrence, hidden in the second run. The unit is the sequence.",
        "",
        *table([*head, *SUMS[1:]], rows),
        *table(["model", *PARAMETERS[1:]], form),
        *table(["model", "heads with the largest parts", "their parts", "gain lost without them, run again"], heads),
    ]
