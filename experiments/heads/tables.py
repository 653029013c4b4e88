"""Tables of heads: how alike they read, how much of a word they keep, and how their effects interact."""

import numpy as np
import pandas as pd

from experiments.estimate import ratio
from experiments.heads.pairs import COSINE, GRADIENT, PATTERNS, PRODUCT, SHARES
from experiments.heads.reading import COMPONENTS, HEADS, READS, ROTATED, SLICES, SPLITS, STREAM, TOGETHER
from experiments.table import Cell, Table

TRAINED, UNTRAINED, ANOTHER = "trained", "untrained", " on another task"
BOTH = "both of the top"
TOP = 6
"""The number of heads with the largest effects on a task; the first ones of its heads."""
READINGS = {
    ("stream", STREAM): STREAM,
    ("values", TOGETHER): "all heads' values",
    **{(part, HEADS): f"one head's {part}" for part in READS},
    ("values", SPLITS): f"values, {SPLITS}",
    ("values", ROTATED): "values, each head rotated",
    ("stream", SLICES): SLICES,
}
"""Parts and groups of the frame of layers whose words are shown, by what they are."""
PREDICTED = SHARES, GRADIENT, COSINE, PATTERNS, f"{SHARES}{ANOTHER}", f"{GRADIENT}{ANOTHER}"
RANKINGS = SHARES, GRADIENT, PRODUCT, COSINE, PATTERNS, *PREDICTED[4:]


def overlaps(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the overlap of the heads of every layer beside those of each comparison, and the differences."""
    compared = layers.group.where(layers.weights == TRAINED, "untrained " + layers.group)
    found = layers.assign(compared=compared).dropna(subset=["overlap"])
    found = found.pivot(index=["model", "part", "layer"], columns="compared", values="overlap")
    for other in (SPLITS, ROTATED, COMPONENTS):
        found[f"{HEADS} − {other}"] = found[HEADS] - found[other]
    return found.sort_index(ascending=False).reset_index()


def readings(layers: pd.DataFrame) -> pd.DataFrame:
    """Return what is read in every layer, beside how often the whole stream has the word."""
    layers = layers.assign(read=[READINGS.get(at) for at in zip(layers.part, layers.group, strict=True)])
    shown = layers.dropna(subset=["read"])
    shown = shown[(shown.weights == TRAINED) | shown.read.isin([STREAM, "one head's values"])]
    at = ["model", "weights", "layer"]
    stream = shown[shown.read == STREAM].set_index(at).words.rename("stream")
    read = shown.read.where(shown.weights == TRAINED, "untrained: " + shown.read)
    return shown.assign(read=read).join(stream, on=at)


def pairs(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return every pair of heads of every prompt: both effects, their interaction, and what is predicted of it."""

    def of_prompt(prompt: dict) -> pd.DataFrame:
        a, b = np.triu_indices(len(prompt["layers"]), 1)
        layers, effects = np.array(prompt["layers"]), np.array(prompt["effects"])
        known = {name: prompt[name] for name in ("model", "task", "prompt", "measured", *PREDICTED)}
        effect = {"first": effects[a], "second": effects[b], PRODUCT: effects[a] * effects[b]}
        return pd.DataFrame(
            known | effect | {"apart": np.abs(layers[a] - layers[b]), "of the top": (a < TOP) * 1 + (b < TOP)}
        )

    return pd.concat(map(of_prompt, prompts.to_dict("records")), ignore_index=True)


def amounts(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return how far the effects of two heads are from their sum, for every task and kind of pairs."""
    of = pairs(prompts)
    kinds = {
        "all": of.apart >= 0,
        BOTH: of["of the top"] == 2,
        "one of the top": of["of the top"] == 1,
        "none of the top": of["of the top"] == 0,
        "in one layer": of.apart == 0,
        "in neighbouring layers": of.apart == 1,
        "farther apart": of.apart > 1,
    }
    less, sizes = of.measured * np.sign(of["first"] + of.second), of[["first", "second"]].abs()
    sums = of.assign(
        less=less.clip(lower=0), more=(-less).clip(lower=0), both=sizes.sum(axis=1), least=sizes.min(axis=1)
    )
    columns = ["less", "more", "both", "least"]
    found = pd.concat(
        {kind: sums[chosen].groupby(["model", "task"], sort=False)[columns].sum() for kind, chosen in kinds.items()},
        names=["pairs"],
    ).reset_index()
    size = found.less + found.more
    shares = {"interaction": size, "less": found.less, "more": found.more, "difference": found.less - found.more}
    return found.assign(smaller=size / found.least, **{name: of / found.both for name, of in shares.items()})


def correlations(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the rank correlation of every prediction with the interactions of a prompt's pairs."""

    def ranked(rows: pd.DataFrame) -> pd.DataFrame:
        numbers, top = rows[[*RANKINGS, "measured"]], rows["of the top"] == 2
        of = {"sizes": numbers.abs(), "with signs": numbers, "top": numbers[top].abs()}
        # The rank correlation with something that is the same for all pairs counts as none.
        return pd.DataFrame({name: of_pairs.rank().corr().measured.fillna(0) for name, of_pairs in of.items()})

    found = pairs(prompts).groupby(["model", "task", "prompt"], sort=False).apply(ranked).stack()
    found = (
        found.rename_axis(["model", "task", "prompt", "interaction ranked by", "of"])
        .rename("correlation")
        .reset_index()
    )
    found["of"] = found.model + ": " + found.of
    return found[found["interaction ranked by"] != "measured"]


def _difference(other: str) -> dict[str, Cell]:
    return {f"{HEADS} − {other}": Cell(f"{HEADS} − {other}", 2, "+")}


TABLES = {
    "Overlap of two heads of a layer": Table(
        "layers",
        ("model", "part"),
        {name: Cell(name, 2) for name in (HEADS, SPLITS, ROTATED, COMPONENTS, f"untrained {HEADS}")}
        | _difference(SPLITS)
        | _difference(COMPONENTS),
        prepare=overlaps,
    ),
    "Reading": Table(
        "layers",
        ("model", "read"),
        {
            "rank": Cell("rank", 1),
            "of the variance, in %": Cell("recovered", 0, scale=100),
            "same word, in %": Cell("words", 0, scale=100),
            "of the stream's, in %": Cell(lambda rows: ratio(rows.words, rows.stream), 0, scale=100),
        },
        prepare=readings,
    ),
    "Interactions of pairs, in % of the effects": Table(
        "prompts",
        ("model", "pairs"),
        {
            "interaction": Cell("interaction", 1, scale=100),
            "of the smaller effect": Cell("smaller", 0, scale=100),
            "less than the sum": Cell("less", 1, scale=100),
            "more than the sum": Cell("more", 1, scale=100),
            "difference": Cell("difference", 1, "+", 100),
        },
        prepare=amounts,
    ),
    "Prediction": Table(
        "prompts",
        ("interaction ranked by",),
        {"": Cell("correlation", 2)},
        columns="of",
        unit="task",
        prepare=correlations,
        note="Mean rank correlation over a prompt's pairs: of sizes, with signs, and of sizes among the top heads.",
    ),
}
