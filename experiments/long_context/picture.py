"""Pictures of what SmolLM2 reads of long texts and of what replaced tokens change, and of trained networks' losses."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.estimate import estimate
from experiments.long_context.longlora import IN_GROUPS, TUNINGS
from experiments.long_context.networks import NONE
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
from experiments.long_context.units import units
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


def reach_in_numbers() -> dict[str, Any]:
    """Return the losses of networks trained with windows, convolutions and attention, and after fine-tuning."""
    trained, tuned = (frames_of(f"long_context_{name}")["networks"] for name in ("trained", "longlora"))
    kinds = [kind for kind in trained.network.unique() if kind != NONE]
    ways = [IN_GROUPS, *(way for way in tuned.network.unique() if way in TUNINGS)]
    axis = "loss in nats a byte"
    return {
        "bytes 128 to 191 of a text": [axis, {kind: _estimated(units(trained, kind).mean(1)) for kind in kinds}],
        "bytes 128 to 511, fine-tuned with": [axis, {way: _estimated(units(tuned, way).mean(1)) for way in ways}],
    }
