"""Tables of docs/findings/long-context.md on SmolLM2, from the kept results of `experiments.long_context.run`."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from duat_jax.evaluation.statistics import students_mean
from experiments.in_context.cells import ratio
from experiments.long_context.reading import MEASURES, equal_shares, label
from experiments.long_context.verdicts import LAST, Pieces, gains, texts_of, verdicts
from experiments.markdown import interval, table

EQUAL = "equal shares"
MODEL, SHUFFLED, UNTRAINED = "SmolLM2-135M", "shuffled text", "untrained"


def _lengths(pieces: Pieces) -> list[int]:
    return sorted({int(name.split(", ")[1]) for name in pieces})


def _measured(pieces: Pieces) -> Iterable[tuple[int, str, list[Any]]]:
    """Yield length, name and what was read by each text."""
    for tokens in _lengths(pieces):
        for name, of, controls in (
            (MODEL, "read", False),
            (SHUFFLED, "read, shuffled text", True),
            (UNTRAINED, "read", True),
        ):
            yield tokens, name, [text[of] for text in texts_of(pieces, tokens, controls)]
        yield tokens, EQUAL, [equal_shares(tokens)._asdict()]


def _share(parts: Any, wholes: Any) -> str:
    return ratio(parts, wholes) if np.any(parts) else "0.0 %"


def _bins(found: Iterable[Any]) -> range:
    return range(1, max(len(each) for each in found))


def reading(pieces: Pieces, measure: str) -> list[str]:
    """Return the table of what is read by distance, with and without the first token."""
    rows = []
    numbers = _bins(np.asarray(read["shares"][measure]).T for *_, of in _measured(pieces) for read in of)
    for tokens, name, texts in _measured(pieces):
        shares, rest = (np.array([np.mean(read[of][measure], 0) for read in texts]) for of in ("shares", "rest"))
        for without, of in ((False, shares), (True, rest)):
            whole = of.sum(1)
            cells = [_share(of[:, i], whole) if i < of.shape[1] else "" for i in (0, *numbers)]
            first = "" if without else _share(1 - rest.sum(1), np.ones(len(rest)))
            rows.append([f"{tokens:,}", name, "left out" if without else "counted", first, *cells])
    return table(["tokens", "weights", "first token", "on it", "itself", *(label(i) for i in numbers)], rows)


def concentration(pieces: Pieces) -> list[str]:
    """Return the table of how many tokens are read, and from where, by squared norms."""
    rows = []
    for tokens, name, texts in _measured(pieces):
        means = [
            interval([float(np.mean(read[of])) for read in texts], 1) for of in ("tokens", "distance", "distance_rest")
        ]
        of_layers = np.mean([read["largest"] for read in texts], 0)
        largest = [f"{100 * share:.1f} %" for share in (of_layers.mean(), of_layers.min(), of_layers.max())]
        rows.append([f"{tokens:,}", name, *means, *largest])
    single = "largest share of a token but the first and itself"
    ends = [single, "in the layer where it is smallest", "largest"]
    return table(["tokens", "weights", "tokens read", "mean distance", "without the first token", *ends], rows)


def lengths(pieces: Pieces) -> list[str]:
    """Return the table of the loss at the texts' ends, by how many tokens stand before them, in nats."""
    rows = []
    for kind in ("", *dict.fromkeys(name.split()[0] for name in pieces)):
        of_kind = {name: found for name, found in pieces.items() if name.startswith(kind)}
        all_lengths = _lengths(of_kind)
        losses = [[np.mean(text["losses"][-LAST:]) for text in texts_of(of_kind, n)] for n in all_lengths]
        gained = [students_mean(gains(of_kind, *pair, LAST)).written(3, "+") for pair in pairwise(all_lengths)]
        rows.append([kind or "all", str(len(losses[0])), *(interval(loss, 3) for loss in losses), *gained])
    names = [f"{tokens:,}" for tokens in _lengths(pieces)]
    return table(["texts", "units", *names, *(f"gain from {a} to {b}" for a, b in pairwise(names))], rows)


def along(pieces: Pieces) -> list[str]:
    """Return the table of the mean loss of every 1,024 tokens of the longest texts."""
    columns = zip(*(text["by position"] for text in texts_of(pieces, max(_lengths(pieces)))), strict=True)
    return table(["thousand", "loss"], [[str(i + 1), interval(list(column), 3)] for i, column in enumerate(columns)])


def replaced(pieces: Pieces, what: str, written: Callable[[list[float]], str]) -> list[str]:
    """Return a table of what replaced tokens change, by distance."""
    rows = []
    for tokens in _lengths(pieces):
        of_texts = [
            text["replaced"] | control["replaced"]
            for text, control in zip(*(texts_of(pieces, tokens, controls) for controls in (False, True)), strict=True)
        ]
        for place in of_texts[0]:
            columns = zip(*(text[place][what] for text in of_texts), strict=True)
            rows.append([f"{tokens:,}", place, *(written(list(column)) for column in columns)])
    width = max(map(len, rows))
    return table(
        ["tokens", "replaced", *(label(i) for i in range(1, width - 1))],
        [[*row, *[""] * (width - len(row))] for row in rows],
    )


def split(pieces: Pieces) -> list[str]:
    """Return the table of the exact parts of replaced tokens, and of each group replaced alone."""
    rows = []
    for tokens in _lengths(pieces):
        found = [text["split"] for text in texts_of(pieces, tokens) if "split" in text]
        for group in found[0] if found else ():
            both = [[text[group][of] for text in found] for of in ("part", "run again")]
            rows.append([f"{tokens:,}", group, *(interval(numbers, 3, "+") for numbers in both)])
    return table(["tokens", "distance", "part by the secant", "replaced alone, run again"], rows)


def tables(pieces: Pieces) -> str:
    """Return all tables."""
    return "\n".join(
        [
            *("### Verdicts", "", *verdicts(pieces), ""),
            *(line for of in MEASURES for line in (f"### What is read, by {of}", "", *reading(pieces, of), "")),
            *("### How many tokens are read", "", *concentration(pieces), ""),
            *("### Loss at the end, by length", "", *lengths(pieces), ""),
            *("### Loss along the longest texts", "", *along(pieces), ""),
            *("### Divergence after replaced tokens, in thousandths of a nat", ""),
            *replaced(pieces, "divergence", lambda of: interval(1000 * np.asarray(of), 2)),
            *("", "### Loss after replaced tokens, in thousandths of a nat", ""),
            *replaced(pieces, "loss", lambda of: interval(1000 * np.asarray(of), 2, "+")),
            *("", "### Positions with a divergence above 0.01", ""),
            *replaced(pieces, "above", lambda of: interval(of, 2)),
            *("", "### Parts by distance", "", *split(pieces)),
        ]
    )
