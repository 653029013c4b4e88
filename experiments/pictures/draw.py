"""The pictures at the top of the pages of results."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.pictures.panels import OTHER, OURS


@styled
def draw_families(numbers: dict[str, Any]) -> Figure:
    """Draw the largest difference to the reference implementation of every checkpoint, by family and precision."""
    figure = Figure(figsize=(7.2, 5.6))
    axes = figure.subplots()
    for column, colour in (("float64", OURS), ("float32", OTHER)):
        points = [(error, place) for place, family in enumerate(numbers.values()) for error in family[column]]
        axes.plot(*np.array(points).T, ".", color=colour, alpha=0.5, label=column)
    axes.set_xscale("log")
    axes.set_yticks(range(len(numbers)), list(numbers))
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("largest difference to Hugging Face transformers, of the largest entry")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure
