"""Tables of docs/findings/in-context.md on answers of several tokens."""

from typing import Any

import numpy as np

from duat_jax.in_context.prompts import EXCHANGED, REDRAWN
from experiments.in_context.cells import Pieces, draws, mean, table
from experiments.in_context.whole_answers import PAIRS, RIGHT
from experiments.markdown import counted

WHOLE = "whole"
ORDINALS = ("first", "second", "third")
LEDGERS = {"mapping": "mapping: right − exchanged", "format": "exchanged − hidden"}


def added(drawn: list[dict[str, Any]], kind: str) -> np.ndarray:
    """Return what demonstrations add to each token of the answer, `[draws, tokens]`."""
    return np.array([np.subtract(draw[kind]["in view"]["logs"], draw[kind]["hidden"]["logs"]) for draw in drawn])


def _gains(pieces: Pieces) -> list[list[str]]:
    rows = []
    for task in PAIRS:
        drawn = draws(pieces, f"answers, {task}, {{}}")
        if len(drawn) < 2:
            continue
        by_kind = {kind: added(drawn, kind) for kind in (RIGHT, EXCHANGED, REDRAWN)}
        right = {
            (kind, where): np.array([draw[kind][where]["right"] for draw in drawn])
            for kind, where in ((RIGHT, "hidden"), (EXCHANGED, "in view"), (RIGHT, "in view"))
        }
        count = by_kind[RIGHT].shape[1]
        for name, chosen in (
            (WHOLE, slice(None)),
            *((name, slice(i, i + 1)) for i, name in enumerate(ORDINALS[:count])),
        ):
            sums = {kind: gains[:, chosen].sum(1) for kind, gains in by_kind.items()}
            rows.append(
                [
                    task,
                    name,
                    str(len(drawn)),
                    mean(sums[RIGHT]),
                    mean(sums[EXCHANGED]),
                    mean(sums[RIGHT] - sums[EXCHANGED]),
                    mean(sums[RIGHT] - sums[REDRAWN]),
                    *(counted(of[:, chosen].all(1)) for of in right.values()),
                ]
            )
    return rows


def _accounts(pieces: Pieces) -> tuple[list[list[str]], list[list[str]], float]:
    """Return the rows over dynamic parameters, those over the closed form's, and the largest error."""
    rows, form, errors = [], [], [0.0]
    for part, title in LEDGERS.items():
        for task in PAIRS:
            accounts = [draw[part] for draw in draws(pieces, f"answer_ledgers, {task}, {{}}")]
            if len(accounts) < 2:
                continue
            errors += [abs(account[tokens]["error"]) for account in accounts for tokens in (WHOLE, "first")]
            for tokens in (WHOLE, "first", "later"):
                columns = np.array([_columns(account, tokens, "parts") for account in accounts]).T
                of_form = np.array([_columns(account, tokens, "form") for account in accounts]).T
                rows.append([title, task, tokens, *map(mean, columns)])
                form.append([title, task, tokens, *map(mean, of_form[1:])])
    return rows, form, max(errors)


def _columns(account: dict[str, Any], tokens: str, split: str) -> np.ndarray:
    """Return the difference and its parts; the later tokens' are those of all tokens without the first one's."""
    of = {name: np.array([each["difference"], *each[split].values()]) for name, each in account.items()}
    return of[WHOLE] - of["first"] if tokens == "later" else of[tokens]


def whole_answers(pieces: Pieces) -> str:
    """Return the tables."""
    gains = _gains(pieces)
    if not gains:
        return ""
    lines = [
        "### Answers of several tokens",
        "",
        "Nats that four demonstrations in view add to the log-probability of the answer's tokens, each after the right"
        " earlier ones, against the same demonstrations hidden; *whole* is the sum. The unit is the draw.",
        "",
        *table(
            [
                *("task", "token", "draws", "added in all", "exchanged ones add", "mapping: right − exchanged"),
                *("right − redrawn", "most probable: hidden", "exchanged", "right"),
            ],
            gains,
        ),
    ]
    rows, form, error = _accounts(pieces)
    if not rows:
        return "\n".join(lines)
    account = next(iter(draws(pieces, f"answer_ledgers, {next(iter(PAIRS))}, {{}}")))["mapping"][WHOLE]
    head = ["part", "task", "tokens"]
    return "\n".join(
        [
            *lines,
            "### The ledgers of whole answers",
            "",
            f"Summed over the answer's tokens; the sums miss the differences by at most {error:.0e}.",
            "",
            *table([*head, "difference", *account["parts"]], rows),
            *table([*head, *account["form"]], form),
        ]
    )
