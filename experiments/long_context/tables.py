"""Numbers and tables of what SmolLM2 reads of long texts, and of what it loses without them."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from experiments.estimate import estimate
from experiments.long_context.reading import ALONG, MEASURES, NORMS, SQUARES, bins, equal_shares, label
from experiments.markdown import table
from experiments.table import Cell, Frames, Table, rows_of

MODEL, SHUFFLED_TEXT, UNTRAINED, EQUAL = "SmolLM2-135M", "shuffled text", "untrained", "equal shares"
EIGHTH, SHUFFLED = "after an eighth", "after an eighth, shuffled text"
"""The 16 replaced tokens after an eighth of the text, and the same in text whose tokens are shuffled."""
ORDER, FIRST, SECOND, FAR = (
    "after an eighth, order alone",
    "first tokens",
    "without the very first",
    "all but the last quarter and the very first",
)
"""The replaced tokens: 16 after an eighth of the text, in another order; the 16 that the text begins with, and these
without the very first one; and all of the text's first three quarters but the very first one."""
SHORT, MIDDLE, LONG = 512, 2048, 8192
"""Lengths that predictions compare."""
FROM = 1024
"""The distance in tokens from which on a token is far."""
LAST = 64
"""The last tokens of a text whose loss is compared between all lengths."""
COLUMNS = {NORMS: "norms", SQUARES: "squares", ALONG: "along"}
"""The column of each measure; with `_rest` at its end it is without the first token."""


def shares(frames: Frames, tokens: int, weights: str, measure: str = NORMS) -> pd.DataFrame:
    """Return of each text the shares of every bin of distances, without the first token."""
    rows = rows_of(frames["read"], tokens=tokens, weights=weights)
    of_texts = {text: np.mean([*of], 0) for text, of in rows.groupby("text", sort=False)[f"{COLUMNS[measure]}_rest"]}
    return pd.DataFrame({text: of / of.sum() for text, of in of_texts.items()}).T


def far_shares(frames: Frames, tokens: int, weights: str, measure: str = NORMS) -> np.ndarray:
    """Return of each text the share of far tokens in what is read, in per cent."""
    far = int(bins(np.array([FROM]))[0])
    return 100 * shares(frames, tokens, weights, measure).loc[:, far:].sum(axis=1).to_numpy()


def divergences(frames: Frames, tokens: int, place: str) -> np.ndarray:
    """Return of each text the divergence 1,024 to 4,095 tokens behind what is replaced, in thousandths of a nat."""
    rows = rows_of(frames["replaced"], tokens=tokens, replaced=place)
    return 1000 * np.array([of[int(bins(np.array([FROM]))[0]) - 1] for of in rows.divergence])


def more_than_shuffled(frames: Frames, tokens: int = MIDDLE) -> np.ndarray:
    """Return of each text the far divergence in natural text, more than in shuffled text."""
    return divergences(frames, tokens, EIGHTH) - divergences(frames, tokens, SHUFFLED)


def gains(frames: Frames, short: int, long: int, last: int) -> np.ndarray:
    """Return how much lower the loss of a text's last tokens is with a longer text before them, in thousandths."""
    losses = [
        np.array([np.mean(of[-last:]) for of in rows_of(frames["losses"], tokens=tokens).losses])
        for tokens in (short, long)
    ]
    return 1000 * (losses[0] - losses[1])


def read_by_distance(frames: Frames) -> list[str]:
    """Return the table of what is read by distance, by norms and without the first token."""
    rows = []
    lengths = [int(tokens) for tokens in frames["read"].tokens.unique()]
    width = int(bins(np.array([max(lengths) - 1]))[0])
    for tokens in lengths:
        equal = equal_shares(tokens).rest[NORMS]
        of_weights = {name: shares(frames, tokens, name) for name in (MODEL, SHUFFLED_TEXT, UNTRAINED)}
        for name, of in {**of_weights, EQUAL: pd.DataFrame(equal / equal.sum())}.items():
            cells = [estimate(100 * of[i].to_numpy()).written(1) for i in of]
            rows.append([f"{tokens:,}", name, *cells, *[""] * (width + 1 - len(cells))])
    return table(["tokens", "weights", "itself", *(label(i) for i in range(1, width + 1))], rows)


def far_by_measure(frames: Frames) -> list[str]:
    """Return the table of the far tokens' share in texts of 8,192 tokens, by each measure."""
    rows = [
        [name, *(estimate(far_shares(frames, LONG, name, measure)).written(1) for measure in MEASURES)]
        for name in (MODEL, SHUFFLED_TEXT, UNTRAINED)
    ]
    return table(["weights", *MEASURES], rows)


def losses_by_length(frames: Frames) -> list[str]:
    """Return the table of the loss of the last 64 tokens, and of the last 1,024, by the text's length."""
    rows = []
    for last in (LAST, FROM):
        of_lengths = {
            f"{tokens:,}": [np.mean(of[-last:]) for of in rows.losses]
            for tokens, rows in frames["losses"].groupby("tokens", sort=False)
            if tokens > last
        }
        cells = ["" if name not in of_lengths else estimate(of_lengths[name]).written(3) for name in _lengths(frames)]
        rows.append([f"the last {last:,}", *cells])
    return table(["tokens predicted", *_lengths(frames)], rows)


def _lengths(frames: Frames) -> list[str]:
    return [f"{tokens:,}" for tokens in frames["losses"].tokens.unique()]


def by_distance(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of replaced tokens with one row for every bin of distances."""
    rows = [
        {
            "tokens": f"{row.tokens:,}",
            "replaced": row.replaced,
            "text": row.text,
            "distance": label(i + 1),
            "divergence": 1000 * row.divergence[i],
            "loss": 1000 * row.loss[i],
        }
        for row in frame.itertuples()
        for i in range(len(row.divergence))
    ]
    return pd.DataFrame(rows)


def replaced(column: str, sign: str = "") -> Table:
    """Return the table of what replaced tokens change, by distance."""
    return Table(
        "replaced", ("tokens", "replaced"), {"": Cell(column, 2, sign)}, columns="distance", prepare=by_distance
    )


TABLES: dict[str, Table | Callable[[Frames], list[str]]] = {
    "What is read, by norms": read_by_distance,
    "Tokens 1,024 or more away, by measure": far_by_measure,
    "Loss at the end, by length": losses_by_length,
    "Divergence after replaced tokens, in thousandths of a nat": replaced("divergence"),
    "Loss after replaced tokens, in thousandths of a nat": replaced("loss", "+"),
    "Parts by distance": Table(
        "split",
        ("tokens", "distance"),
        {"part by the secant": Cell("part", 3, "+"), "replaced alone, run again": Cell("again", 3, "+")},
    ),
}
