"""Picture of what SmolLM2 reads of texts of 8,192 tokens by distance, and of what replaced tokens change."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.estimate import estimate
from experiments.long_context.reading import NORMS, equal_shares, label
from experiments.long_context.tables import (
    EIGHTH,
    EQUAL,
    FAR,
    LONG,
    MODEL,
    SHUFFLED,
    SHUFFLED_TEXT,
    by_distance,
    shares,
)
from experiments.pictures.panels import OTHER, OURS
from experiments.run import frames_of
from experiments.table import rows_of


def _estimated(values: Any) -> list[float]:
    return [round(number, 6) for number in estimate(np.asarray(values))[:3]]


def distances_in_numbers() -> dict[str, Any]:
    """Return what is read of texts of 8,192 tokens, and what replaced tokens change in them, by distance."""
    frames = frames_of("long_context")
    equal = equal_shares(LONG).rest[NORMS][0]
    of_models = {name: shares(frames, LONG, name) for name in (MODEL, SHUFFLED_TEXT)}
    read = {name: {label(i): _estimated(100 * of[i]) for i in [*of][1:]} for name, of in of_models.items()}
    read[EQUAL] = {label(i): [100 * float(equal[i] / equal.sum())] * 3 for i in range(1, len(equal))}
    changed = rows_of(by_distance(frames["replaced"]), tokens=f"{LONG:,}")

    def of_place(place: str, column: str) -> dict[str, list[float]]:
        rows = rows_of(changed, replaced=place).groupby("distance", sort=False)[column]
        return {str(distance): _estimated(values) for distance, values in rows}

    return {
        "read": read,
        "changed": {"the text": of_place(EIGHTH, "divergence"), SHUFFLED_TEXT: of_place(SHUFFLED, "divergence")},
        "lost": of_place(FAR, "loss"),
    }


@styled
def draw_distances(numbers: dict[str, Any]) -> Figure:
    """Draw what is read of long texts by distance, and what replaced tokens change."""
    figure = Figure(figsize=(10.4, 3.8))
    read, changed, lost = figure.subplots(1, 3)
    colours = {MODEL: OURS, "the text": OURS, SHUFFLED_TEXT: OTHER, EQUAL: "black"}
    for axes, lines in ((read, numbers["read"]), (changed, numbers["changed"]), (lost, {"": numbers["lost"]})):
        for name, of in lines.items():
            values = np.array(list(of.values()))
            axes.errorbar(
                range(len(values)),
                values[:, 0],
                np.abs(values[:, 1:] - values[:, :1]).T,
                fmt=".-",
                color=colours.get(name, OURS),
                label=name,
            )
        axes.set_xticks(range(len(numbers["read"][MODEL])), list(numbers["read"][MODEL]), rotation=60)
        axes.set_xlabel("distance in tokens")
    read.set(ylabel="share of what is written, in %", title="read, without the first token")
    changed.set(yscale="log", ylabel="divergence, thousandths of a nat", title="16 tokens replaced")
    lost.set(yscale="log", ylabel="loss, thousandths of a nat", title="three quarters replaced")
    for axes in (read, changed):
        axes.legend(fontsize="small")
    return figure
