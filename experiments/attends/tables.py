"""Tables on replaced sources: ranks, leads, direction and size, controls, and what moves when less is held."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from experiments.attends.replaced import FREE, MOVING, RESAMPLED, ZERO
from experiments.estimate import median, ratio
from experiments.table import Cell, Table

PREDICTED, PART, GRADIENT = "the explanation's prediction", "the explanation's part", "gradient times change"
ATTENDED_MOST, CHANGE = "attention to its token", "length of its change"
RIVALS = {"length of the written vector": "length", CHANGE: "change", ATTENDED_MOST: "attended", "at random": "lot"}
"""Rankings that need no explanation, with the column that has them."""
NEAR = "at one of the three tokens (added afterwards)"
"""Sources at the query's token and at those of both keys before all others."""
EARLY = "the same, and the earliest layer first (added afterwards)"
"""A ranking without an explanation, too: embeddings and early MLPs at these tokens come first."""
LAST = 1000
"""More than any model has layers."""
RANKINGS = PREDICTED, PART, *RIVALS, NEAR, EARLY, GRADIENT
BY_LOT, LARGEST_ONES, BOTH, ELSEWHERE = "drawn at random", "the largest", "with the largest", "drawn, at other tokens"
"""The sources of an attention: drawn at random; with the largest parts; both; drawn, but at none of three tokens."""
UNIT = ["model", "number"]
"""Columns that name an attention."""
EMBEDDING, FIRST = 0, 1
"""The number of the embedding and of the first MLP, in the column of what has written a source."""


def near(sources: pd.DataFrame) -> pd.Series:
    """Return which sources are at the query's token, or at that of one of both keys."""
    three = sources[["query", "key", "contrast"]]
    return three.eq(sources.token, axis=0).any(axis=1)


def of_set(sources: pd.DataFrame, which: str) -> pd.DataFrame:
    """Return the sources of a set."""
    chosen = {
        BY_LOT: sources.drawn,
        LARGEST_ONES: sources.largest,
        BOTH: sources.drawn | sources.largest,
        ELSEWHERE: sources.drawn & ~near(sources),
    }
    return sources[chosen[which]]


def measured(sources: pd.DataFrame, replacement: str = RESAMPLED) -> pd.Series:
    """Return how each source moves the attention when it is replaced and nothing is held."""
    return sources[f"measured, {FREE} moving" if replacement == RESAMPLED else "measured, zero"]


def size(sources: pd.DataFrame, ranking: str, replacement: str = RESAMPLED) -> pd.Series:
    """Return the size that a ranking gives to each source."""
    if ranking in (NEAR, EARLY):
        first = near(sources) * LAST
        return first if ranking == NEAR else first + LAST - sources["written by"]
    if ranking == CHANGE and replacement == ZERO:
        return sources.length
    columns = {PREDICTED: f"predicted, {replacement}", GRADIENT: f"gradient, {replacement}", PART: "part", **RIVALS}
    return sources[columns[ranking]].abs()


def agreement(sources: pd.DataFrame, first: pd.Series, second: pd.Series) -> pd.Series:
    """Return the rank correlation (Spearman) of two numbers over the sources of each attention; 0 if one is equal."""
    units = [sources[name] for name in UNIT]
    ranks = pd.DataFrame({"first": first, "second": second}).groupby(units, sort=False).rank()
    centred = ranks - ranks.groupby(units, sort=False).transform("mean")
    squares = (centred**2).groupby(units, sort=False).sum()
    products = (centred["first"] * centred["second"]).groupby(units, sort=False).sum()
    return (products / np.sqrt(squares["first"] * squares["second"])).fillna(0.0)


def correlation(sources: pd.DataFrame, ranking: str, replacement: str = RESAMPLED) -> pd.Series:
    """Return a ranking's rank correlation with how much each source moves the attention, of every attention."""
    return agreement(sources, size(sources, ranking, replacement), measured(sources, replacement).abs())


def _by_model(sources: pd.DataFrame, of: dict[str, tuple[str, str]], values: Callable[..., pd.Series]) -> pd.DataFrame:
    """Return a number of every attention by each ranking, for sets of sources of each model."""
    found = []
    for model, rows in sources.groupby("model", sort=False):
        for title, (which, replacement) in of.items():
            for ranking in RANKINGS:
                numbers = values(of_set(rows, which), ranking, replacement).rename("number of a ranking").reset_index()
                found.append(numbers.assign(ranking=ranking, of=f"{model}: {title}"))
    return pd.concat(found).rename(columns={"ranking": "sources ranked by"})


def ranks(sources: pd.DataFrame) -> pd.DataFrame:
    """Return the rank correlation of every ranking and attention."""
    sets = {BY_LOT: (BY_LOT, RESAMPLED), BOTH: (BOTH, RESAMPLED), "zero": (BY_LOT, ZERO)}
    return _by_model(sources, sets, correlation)


def _lead(sources: pd.DataFrame, ranking: str, replacement: str) -> pd.Series:
    return correlation(sources, PREDICTED, replacement) - correlation(sources, ranking, replacement)


def leads(sources: pd.DataFrame) -> pd.DataFrame:
    """Return by how much predictions rank the sources of every attention better than each other ranking."""
    found = _by_model(sources, {which: (which, RESAMPLED) for which in (BY_LOT, LARGEST_ONES, BOTH, ELSEWHERE)}, _lead)
    return found[found["sources ranked by"] != PREDICTED]


def _kinds(sources: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, str, str]]:
    """Yield sources by a title, with what predicts their change and what replaces them."""
    largest = of_set(sources, LARGEST_ONES)
    for which in (LARGEST_ONES, BY_LOT, BOTH, ELSEWHERE):
        yield which, of_set(sources, which), "predicted", RESAMPLED
    for which in (LARGEST_ONES, BY_LOT):
        yield f"{which}, set to zero", of_set(sources, which), "predicted", ZERO
    yield f"{LARGEST_ONES}, by gradients", largest, "gradient", RESAMPLED
    yield f"{LARGEST_ONES}, not the first MLP", largest[largest["written by"] != FIRST], "predicted", RESAMPLED
    before = (largest.layer - (largest["written by"] - 1)).where(largest["written by"] != EMBEDDING)
    for title, (nearest, farthest) in {"1 layer": (1, 1), "2 to 5 layers": (2, 5), "6 or more layers": (6, 99)}.items():
        chosen = largest[before.between(nearest, farthest)]
        yield f"{LARGEST_ONES}, {title} before the head", chosen, "predicted", RESAMPLED
    both = of_set(sources, BOTH)
    yield "embeddings", both[both["written by"] == EMBEDDING], "predicted", RESAMPLED


def accuracies(sources: pd.DataFrame) -> pd.DataFrame:
    """Return sums over the sources of every attention that say how well predictions tell direction and size."""
    found = []
    for title, rows, by, replacement in _kinds(sources):
        predicted, moved = rows[f"{by}, {replacement}"], measured(rows, replacement)
        sums = rows[UNIT].assign(
            product=predicted * moved,
            square=predicted**2,
            right=predicted * moved > 0,
            # Two texts with the same token at one place may write the same vector there, which then changes nothing.
            moved=predicted * moved != 0,
            fell=moved < 0,
            changed=moved != 0,
            missed=(moved - predicted).abs(),
            whole=moved.abs(),
            count=1,
        )
        found.append(sums.groupby(UNIT, sort=False, as_index=False).sum().assign(sources=title))
    return pd.concat(found)


def control_pairs(sources: pd.DataFrame) -> pd.DataFrame:
    """Return of every attention how often, and how many times more, sources move it than their controls."""
    rows = sources.assign(near=near(sources), size=measured(sources).abs())
    at = [*UNIT, "written by"]
    controls = rows[[*at, "token", "near", "size"]].rename(columns={"token": "control"})
    pairs = rows.dropna(subset=["control"]).astype({"control": int}).merge(controls, on=[*at, "control"])
    pairs = pairs.assign(more=pairs.size_x > pairs.size_y, count=1)
    alike = pairs[pairs.near_x == pairs.near_y]
    sums = [
        of.groupby(UNIT, sort=False, as_index=False)[["more", "count", "size_x", "size_y"]].sum().assign(pairs=title)
        for title, of in (("all", pairs), ("at alike tokens (added afterwards)", alike))
    ]
    return pd.concat(sums)


def left(sources: pd.DataFrame) -> pd.DataFrame:
    """Return what is left of the miss of every attention where only some of what is held moves."""
    found = []
    both = of_set(sources, BOTH)
    for moving in MOVING:
        again, freely = both[f"measured, {moving} moving"], measured(both)
        sums = both[UNIT].assign(left=(freely - again).abs(), missed=(freely - both[f"predicted, {RESAMPLED}"]).abs())
        of_units = sums.groupby(UNIT, sort=False, as_index=False).sum()
        farthest = sources[f"measured, {moving} moving"].abs().groupby(sources.model).max()
        found.append(of_units.assign(moving=moving, farthest=of_units.model.map(farthest)))
    return pd.concat(found)


def attentions(sources: pd.DataFrame) -> pd.DataFrame:
    """Return every attention, with what its largest sources are and how they are predicted."""
    rows = of_set(sources, LARGEST_ONES)
    missed = (measured(rows) - rows[f"predicted, {RESAMPLED}"]).abs().groupby([rows[name] for name in UNIT]).sum()
    whole = measured(rows).abs().groupby([rows[name] for name in UNIT]).sum()
    of_first = rows.assign(first=rows["written by"] == FIRST, count=1).groupby(UNIT)[["first", "count"]].sum()
    found = sources.drop_duplicates(UNIT).set_index(UNIT)
    return (
        found.assign(error=found[["error", "explained"]].max(axis=1), worse=missed > whole).join(of_first).reset_index()
    )


def _per_cent(part: str, whole: str) -> Cell:
    return Cell(lambda rows: ratio(rows[part], rows[whole]), 0, scale=100)


def _sum(column: str) -> Cell:
    return Cell(lambda rows: f"{rows[column].sum():,}")


TABLES = {
    "Ranks": Table(
        "sources",
        ("sources ranked by",),
        {"": Cell("number of a ranking", 2)},
        columns="of",
        prepare=ranks,
        note="Mean rank correlation with how much a source moves the attention.",
    ),
    "Leads of the explanation's prediction": Table(
        "sources", ("sources ranked by",), {"": Cell("number of a ranking", 2, "+")}, columns="of", prepare=leads
    ),
    "Direction and size": Table(
        "sources",
        ("model", "sources"),
        {
            "slope": Cell(lambda rows: ratio(rows["product"], rows.square), 2),
            "same direction, in %": _per_cent("right", "moved"),
            "less every time, in %": _per_cent("fell", "changed"),
            "ahead of less every time, in points": Cell(
                lambda rows: ratio(rows.right - rows.fell, rows.moved), 0, "+", 100
            ),
            "miss, in %": _per_cent("missed", "whole"),
            "sources replaced": _sum("count"),
        },
        prepare=accuracies,
        note="The slope is that of measured on predicted change; the miss is in per cent of all measured changes.",
    ),
    "Sources and their controls": Table(
        "sources",
        ("model", "pairs"),
        {
            "more than the control, in %": _per_cent("more", "count"),
            "times the control": Cell(lambda rows: ratio(rows.size_x, rows.size_y), 1),
            "number": _sum("count"),
        },
        prepare=control_pairs,
    ),
    "Left of the miss": Table(
        "sources",
        ("moving",),
        {
            "of the miss, in %": Cell(lambda rows: median(rows.left / rows.missed), 0, scale=100),
            "farthest change": Cell(lambda rows: f"{rows.farthest.iloc[0]:,.0f}"),
        },
        columns="model",
        prepare=left,
        note="Medians over attentions, since some runs go far astray where only a part of what is held moves.",
    ),
    "Attentions": Table(
        "sources",
        ("model",),
        {
            "attentions": Cell(lambda rows: str(len(rows))),
            "heads": Cell(lambda rows: str(len(rows.drop_duplicates(["layer", "head"])))),
            "largest error of rounding": Cell(lambda rows: f"{rows.error.max():.0e}"),
            "of the largest sources, the first MLP, in %": _per_cent("first", "count"),
            "attentions whose largest miss more than no change, in %": Cell("worse", 0, scale=100),
        },
        prepare=attentions,
    ),
}
