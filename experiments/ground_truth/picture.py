"""The picture of how well every method ranks the units of known circuits."""

from typing import Any

from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.estimate import estimate
from experiments.pictures.panels import colours, dots
from experiments.run import frames_of

TITLES = {"alone": "one program is read", "ignoring": "both are read, one is ignored"}


def both_areas() -> dict[str, Any]:
    """Return how well every method ranks the units of known circuits, for both read-outs."""
    areas = frames_of("ground_truth")["areas"]
    areas = areas[areas.ties]
    order = areas[areas["read"] == "alone"].groupby("method").area.mean().sort_values(ascending=False).index
    return {
        read: {
            method: [round(float(number), 3) for number in estimate(of[of.method == method].area)[:3]]
            for method in order
        }
        for read, of in areas.groupby("read", sort=False)
    }


@styled
def draw_areas(numbers: dict[str, Any]) -> Figure:
    """Draw how well every method ranks the units of a known circuit, for both read-outs."""
    figure = Figure(figsize=(8.2, 3.8))
    for axes, (read, methods) in zip(figure.subplots(1, 2, sharey=True), numbers.items(), strict=True):
        dots(axes, methods, colours(methods))
        axes.axvline(0.5, color="black", linestyle=":")
        axes.set_xlim(0, 1.05)
        axes.set_title(TITLES[read])
        axes.set_xlabel("area under the ROC curve")
    return figure
