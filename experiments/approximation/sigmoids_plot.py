"""The picture of the error of a sum of sigmoids against their number."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.papers import ApproximationErrors


@styled
def draw_errors(errors: Mapping[int, Mapping[str, ApproximationErrors]], neurons: Float[np.ndarray, "sizes"]) -> Figure:
    """Plot the largest error and the root mean square against `N`, a row for each and a column for each dimension."""
    figure = Figure(figsize=(1.0 + 3.2 * len(errors), 5.6))
    axes = figure.subplots(2, len(errors), squeeze=False, sharex=True, sharey="col")
    for j, (dimensions, functions) in enumerate(errors.items()):
        for i, (name, of_function) in enumerate(functions.items()):
            for axis, error in zip(axes[:, j], map(np.asarray, of_function), strict=True):
                axis.plot(neurons, np.exp(np.log(error).mean(1)), marker=".", color=f"C{i}", label=name)
                axis.fill_between(neurons, error.min(1), error.max(1), color=f"C{i}", alpha=0.15, linewidth=0)
        for row, axis in enumerate(axes[:, j]):
            highest = max(np.asarray(of_function[row])[0].max() for of_function in functions.values())
            axis.plot(neurons, highest * (neurons / neurons[0]) ** -0.5, ":", color="black", label=r"$N^{-1/2}$")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
        axes[0, j].set_title(f"{dimensions} dimension{'s' * (dimensions > 1)}")
        axes[1, j].set_xlabel("N")
    axes[0, 0].set_ylabel("largest error")
    axes[1, 0].set_ylabel("root mean square of the error")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
