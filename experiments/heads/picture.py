"""The picture of heads: how alike they read, and how well their interactions are predicted."""

from typing import Any

from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.estimate import estimate
from experiments.heads.models import EMBEDDED, SMOLLM2
from experiments.heads.reading import COMPONENTS, HEADS, ROTATED, SPLITS
from experiments.heads.tables import RANKINGS, SHARES, correlations, overlaps
from experiments.pictures.panels import OTHER, OURS, dots
from experiments.run import frames_of


def heads_in_numbers() -> dict[str, Any]:
    """Return how alike what heads read as values is, and how well interactions of heads are predicted."""
    frames = frames_of("heads")
    layers, ranked = overlaps(frames["layers"]), correlations(frames["prompts"])
    groups = HEADS, SPLITS, ROTATED, COMPONENTS, f"untrained {HEADS}"
    found = {}
    for model in (EMBEDDED, SMOLLM2):
        of_values = layers[(layers.model == model) & (layers.part == "values")]
        of_tasks = ranked[ranked.of == f"{model}: sizes"].groupby(["interaction ranked by", "task"]).correlation.mean()
        found[model] = {
            "overlap": {group: estimate(of_values[group])[:3] for group in groups},
            "prediction": {ranking: estimate(of_tasks[ranking])[:3] for ranking in RANKINGS[:-1]},
        }
    return found


@styled
def draw_heads(numbers: dict[str, Any]) -> Figure:
    """Draw how alike what heads read is beside comparisons, and how well interactions of heads are predicted."""
    figure = Figure(figsize=(8.6, 4.6))
    titles = {EMBEDDED: "the embedded model", SMOLLM2: SMOLLM2}
    for columns, (model, of_model) in zip(
        figure.subplots(2, 2, sharex="row", sharey="row").T, numbers.items(), strict=True
    ):
        above, below = columns
        dots(above, of_model["overlap"], {name: OURS if name == HEADS else OTHER for name in of_model["overlap"]})
        above.set(title=titles[model], xlim=(0, 1), xlabel="overlap of two heads' values")
        colours = {name: OURS if name == SHARES else OTHER for name in of_model["prediction"]}
        dots(below, of_model["prediction"], colours)
        below.set_xlabel("rank correlation with interactions")
    return figure
