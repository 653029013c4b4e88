"""Tables of docs/long-context.md on SmolLM2, from the kept results of `experiments.long_context.run`."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.in_context.cells import ratio
from experiments.long_context.reading import equal_shares, label
from experiments.pages import interval, table

Pieces = dict[str, Any]
"""The measurements of every text and length, by the piece's name."""

EQUAL = "equal shares"
MODEL, UNTRAINED = "SmolLM2-135M", "untrained"


def _texts(pieces: Pieces, tokens: int, controls: bool = False) -> list[Any]:
    """Return the measurements of one length, one of each text."""
    end = f", {tokens}, controls" if controls else f", {tokens}"
    return [found for name, found in pieces.items() if name.endswith(end)]


def _lengths(pieces: Pieces) -> list[int]:
    return sorted({int(name.split(", ")[1]) for name in pieces})


def _measured(pieces: Pieces) -> Iterable[tuple[int, str, list[Any]]]:
    """Yield length, name and what was read by each text."""
    for tokens in _lengths(pieces):
        for name, controls in ((MODEL, False), (UNTRAINED, True)):
            if found := _texts(pieces, tokens, controls):
                yield tokens, name, [text["read"] for text in found]
        yield tokens, EQUAL, [equal_shares(tokens)._asdict()]


def _share(parts: Any, wholes: Any) -> str:
    return ratio(parts, wholes) if np.any(parts) else "0.0 %"


def _bins(found: Iterable[Any]) -> range:
    return range(1, max(len(each) for each in found))


def reading(pieces: Pieces) -> list[str]:
    """Return the table of what is read by distance, with and without the first token.

    Args:
        pieces: what was measured.
    """
    rows = []
    numbers = _bins(np.asarray(read["shares"]).T for *_, of in _measured(pieces) for read in of)
    for tokens, name, texts in _measured(pieces):
        shares, rest = (np.array([np.mean(read[of], 0) for read in texts]) for of in ("shares", "rest"))
        for without, of in ((False, shares), (True, rest)):
            whole = of.sum(1)
            cells = [_share(of[:, i], whole) if i < of.shape[1] else "" for i in (0, *numbers)]
            first = "" if without else _share(1 - rest.sum(1), np.ones(len(rest)))
            concentration = ["", ""] if without else [interval(_means(texts, of), 1) for of in ("tokens", "distance")]
            rows.append([f"{tokens:,}", name, "left out" if without else "counted", first, *cells, *concentration])
    head = ["tokens", "weights", "first token", "on it", "itself", *(label(i) for i in numbers)]
    return table([*head, "tokens read", "mean distance"], rows)


def _means(texts: list[Any], of: str) -> list[float]:
    return [float(np.mean(read[of])) for read in texts]


def lengths(pieces: Pieces) -> list[str]:
    """Return the table of the loss at the texts' ends, by how many tokens stand before them.

    Args:
        pieces: what was measured.
    """
    rows = []
    for kind in ("", *dict.fromkeys(name.split()[0] for name in pieces)):
        of_kind = {name: found for name, found in pieces.items() if name.startswith(kind)}
        losses = [[np.mean(text["losses"]) for text in _texts(of_kind, tokens)] for tokens in _lengths(of_kind)]
        gains = [interval(np.subtract(*pair), 3, "+") for pair in pairwise(losses)]
        rows.append([kind or "all", str(len(losses[0])), *(interval(loss, 2) for loss in losses), *gains])
    names = [f"{tokens:,}" for tokens in _lengths(pieces)]
    return table(["texts", "units", *names, *(f"gain from {a} to {b}" for a, b in pairwise(names))], rows)


def replaced(pieces: Pieces, what: str, written: Callable[[list[float]], str]) -> list[str]:
    """Return a table of what replaced tokens change, by distance.

    Args:
        pieces: what was measured.
        what: `"divergence"`, `"loss"` or `"above"`.
        written: formats a number of each text.
    """
    rows = []
    for tokens in _lengths(pieces):
        of_texts = [
            {**(text["replaced"]), **(control["replaced"] if control else {})}
            for text, control in zip(
                _texts(pieces, tokens), _texts(pieces, tokens, True) or [None] * len(pieces), strict=False
            )
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
    """Return the table of the exact parts of replaced tokens, and of each group replaced alone.

    Args:
        pieces: what was measured.
    """
    rows = []
    for tokens in _lengths(pieces):
        found = [text["split"] for text in _texts(pieces, tokens) if "split" in text]
        for group in found[0] if found else ():
            both = [[text[group][of] for text in found] for of in ("part", "run again")]
            rows.append([f"{tokens:,}", group, *(interval(numbers, 3, "+") for numbers in both)])
    return table(["tokens", "distance", "part by the secant", "replaced alone, run again"], rows)


def tables(pieces: Pieces) -> str:
    """Return all tables.

    Args:
        pieces: what was measured.
    """
    return "\n".join(
        [
            *("### What is read, by distance", "", *reading(pieces), ""),
            *("### Loss at the end, by length", "", *lengths(pieces), ""),
            *("### Divergence after replaced tokens", "", *replaced(pieces, "divergence", lambda of: interval(of, 4))),
            *("", "### Loss after replaced tokens", ""),
            *replaced(pieces, "loss", lambda of: interval(of, 4, "+")),
            *("", "### Positions with a divergence above 0.01", ""),
            *replaced(pieces, "above", lambda of: interval(of, 2)),
            *("", "### Parts by distance", "", *split(pieces)),
        ]
    )
