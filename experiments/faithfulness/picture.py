"""The picture of how far every method is behind the secant in ordering tokens."""

from typing import Any

from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.pictures.panels import OURS, colours, dots
from experiments.run import frames_of

FIRST = "secant, mask"


def leads() -> dict[str, Any]:
    """Return how far every method is behind the secant on pairs of sentences, with its cost, in both ways."""
    of = frames_of("faithfulness")["orders"]
    of = of[(of.comparison == "Pairs of sentences") & (of.method != FIRST)]
    of = of.assign(name=of.method + of.cost.map(" ({:.1f})".format))
    masked = of[of.removal == "masked"].sort_values("ahead", kind="stable").name
    return {
        removal: {
            name: [round(number, 3) for number in rows.loc[name, ["ahead", "ahead_low", "ahead_high"]]]
            for name in masked
        }
        for removal, group in of.groupby("removal", sort=False)
        for rows in [group.set_index("name")]
    }


@styled
def draw_leads(numbers: dict[str, Any]) -> Figure:
    """Draw how far every method is behind the secant, in both ways of removing tokens."""
    figure = Figure(figsize=(8.6, 5.2))
    titles = {"masked": "tokens masked out", "removed": "tokens really removed"}
    for axes, (removal, methods) in zip(figure.subplots(1, 2, sharey=True), numbers.items(), strict=True):
        dots(axes, methods, colours(methods))
        axes.axvline(0, color=OURS, linewidth=1)
        axes.set_title(titles[removal])
        axes.set_xlabel("behind the secant by")
    return figure
