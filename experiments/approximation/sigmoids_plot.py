"""The picture of the error of a sum of sigmoids against their number."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.approximation.sigmoids import Errors


@styled
def draw_errors(errors: Mapping[int, Mapping[str, Errors]], neurons: Float[np.ndarray, "sizes"]) -> Figure:
    """Plot the largest error (lines) and the root mean square (dashed) against `N`, a column for each dimension.

    Args:
        errors: for each dimension and each function the errors, `[sizes, seeds]`; the range over seeds is shaded.
        neurons: `N`, `[sizes]`.
    """
    figure = Figure(figsize=(1.6 + 3.2 * len(errors), 3.8))
    axes = figure.subplots(1, len(errors), squeeze=False, sharey=True)[0]
    for axis, (dimensions, functions) in zip(axes, errors.items(), strict=True):
        for i, (name, of_function) in enumerate(functions.items()):
            for error, style in zip(map(np.asarray, of_function), ("-", "--"), strict=True):
                label = name if style == "-" else None
                axis.plot(neurons, np.exp(np.log(error).mean(1)), style, marker=".", color=f"C{i}", label=label)
                axis.fill_between(neurons, error.min(1), error.max(1), color=f"C{i}", alpha=0.15, linewidth=0)
        highest = max(np.asarray(of_function.supremum)[0].max() for of_function in functions.values())
        axis.plot(neurons, highest * (neurons / neurons[0]) ** -0.5, ":", color="black", label=r"$N^{-1/2}$")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("N")
        axis.set_title(f"{dimensions} dimension{'s' * (dimensions > 1)}")
    axes[0].set_ylabel("error: largest, and rms (dashed)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
