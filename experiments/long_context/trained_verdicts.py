"""The verdicts of docs/findings/long-context.md on trained networks, by the bounds that are stated there beforehand."""

from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import students_mean
from experiments.long_context.networks import FEATURES, FULL, NONE, PATTERN, TOKENS, WINDOW
from experiments.markdown import table

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
NOT_TUNED, INTERPOLATED = "not fine-tuned", "not fine-tuned, interpolated"
SHORT_TEXTS = "texts of 128 tokens, all weights"
LEVEL = 0.01
"""The difference of losses in nats below which networks are level."""
TENTH = 0.1
"""The share of what fine-tuning with full attention gains, below which a difference counts as none."""
ZERO = 1e-4
"""Up to rounding, in nats."""

Found = dict[str, Any]
"""Measurements, as plain data."""
Units = Float[np.ndarray, "seeds texts"]
"""A number of every seed and text."""


def decided(confirmed: bool, refuted: bool) -> str:
    """Return the verdict; a difference below the bound of the opposite view counts as none."""
    return REFUTED if refuted else CONFIRMED if confirmed else UNDECIDED


def above(values: Units) -> bool:
    """Return whether numbers are above zero: their intervals over seeds and over texts, and every seed's mean."""
    seeds = values.mean(1)
    return students_mean(seeds).low > 0 and students_mean(values.mean(0)).low > 0 and bool((seeds > 0).all())


def level(values: Units, bound: Units | float) -> bool:
    """Return whether numbers are between a bound and its negative."""
    return above(bound - values) and above(bound + values)


def compared(values: Units) -> str:
    """Return the verdict that a difference is positive; one that is level counts as none."""
    return decided(above(values), above(-values) or level(values, LEVEL))


def of_seeds(found: Found, what: str) -> Units:
    """Return a number of every seed and text."""
    return np.array([seed[what] for seed in found["seeds"]])


def numbers(values: Units) -> list[str]:
    """Return the cells of a difference: its interval over seeds and over texts, and the signs of the seeds' means."""
    seeds = values.mean(1)
    intervals = [students_mean(of).written(4, "+") for of in (seeds, values.mean(0))]
    return [*intervals, f"{(seeds > 0).sum()} of {len(seeds)}"]


def recalls(found: Found) -> str:
    """Return the verdict that every seed recalls at every distance, at less than half of the first copy's loss."""
    of_all = [seed["recall"] for seed in found["seeds"]]
    below = [losses[name] < losses[f"{name}, first copy"] / 2 for losses in of_all for name in losses if name.isdigit()]
    return decided(all(below), not any(below))


def _row(name: str, decision: str, values: Units) -> list[str]:
    return [name, decision, *numbers(values)]


def _reach(kinds: Found) -> list[list[str]]:
    """Return the verdicts on networks of limited reach."""
    gain = {kind: of_seeds(kinds[kind], "gain") for kind in (FULL, WINDOW, TOKENS, NONE)}
    late = {kind: of_seeds(kinds[kind], "late") for kind in (FULL, WINDOW, TOKENS, FEATURES, PATTERN)}
    by_reach, recall = compared(gain[FULL]), recalls(kinds[FULL])
    pairs = {
        "by moving patterns: fixed pattern − full attention": (PATTERN, FULL),
        "convolution along the features − full attention (doesn't decide)": (FEATURES, FULL),
        "at equal reach: convolution of 8 tokens − window of 8": (TOKENS, WINDOW),
    }
    # A training after which attention does neither was too short to tell.
    short = by_reach != CONFIRMED and recall != CONFIRMED
    by_reach, recall = (UNDECIDED, UNDECIDED) if short else (by_reach, recall)
    rows = [_row("by reach: full attention gains beyond 32 bytes", by_reach, gain[FULL])]
    for name, pair in pairs.items():
        more = late[pair[0]] - late[pair[1]]
        rows.append(_row(f"{name}, loss at 128 to 191", UNDECIDED if short and FULL in pair else compared(more), more))
    rows.append(["full attention recalls at every distance", recall, "", "", ""])
    for kind in (WINDOW, TOKENS, NONE):
        zero = np.abs(gain[kind]).max() < ZERO
        rows.append(_row(f"check: {kind} gains nothing beyond its reach", "holds" if zero else "fails", gain[kind]))
    return rows


def _longer(ways: Found) -> list[list[str]]:
    """Return the verdicts on fine-tuning to longer texts."""
    late = {name: of_seeds(of, "late") for name, of in ways.items()}
    start = min((late[NOT_TUNED], late[INTERPOLATED]), key=lambda losses: float(losses.mean()))
    rows = []
    for trained in ("all weights", "adapters"):
        full, groups, shifted = (late[f"{way}, {trained}"] for way in ("full attention", "groups", "shifted groups"))
        way = start - full
        gained, tenth = above(way), TENTH * way
        cases = {
            "shifted groups suffice: shifted groups − full attention": (
                shifted - full,
                decided(above(tenth - (shifted - full)), above(shifted - full - tenth)),
            ),
            "the shift matters: groups − shifted groups": (
                groups - shifted,
                decided(above(groups - shifted), above(tenth - (groups - shifted))),
            ),
        }
        if trained == "all weights":
            more = late[SHORT_TEXTS] - shifted
            decision = decided(level(more, tenth), above(more - tenth) or above(-more - tenth))
            cases["more training alone: texts of 128 tokens − shifted groups"] = more, decision
        rows.append(_row(f"{trained}: start − full attention", "gained" if gained else "not gained", way))
        rows += [
            _row(f"{trained}, {name}", decision if gained else UNDECIDED, of) for name, (of, decision) in cases.items()
        ]
    check = late["groups, all weights"] - late[SHORT_TEXTS]
    return [*rows, _row("check: groups as texts of 128", "holds" if level(check, LEVEL) else "fails", check)]


def verdicts(results: Found) -> list[str]:
    """Return the table of verdicts, with differences in nats."""
    head = ["prediction", "verdict", "difference, over seeds", "over texts", "seeds above zero"]
    return table(head, [*_reach(results["kinds"]), *_longer(results["longer"])])
