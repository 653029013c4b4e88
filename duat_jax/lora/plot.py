"""Plots of moved parameters and of the losses of a training of adapters."""

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.lora.parameters import Moved


@styled
def draw_moved(moved: dict[str, Moved]) -> Figure:
    """Plot the relative change of every parameter of the closed form, in percent, as heat maps side by side.

    Args:
        moved: the results of `moved_parameters`, by the title of the heat map.
    """
    figure = Figure(figsize=(1.5 + 4.5 * len(moved), 1.2 + 0.42 * len(next(iter(moved.values())).inner_maps)))
    figure.set_layout_engine("constrained")
    maps = {
        title: np.array(
            [
                [float(norm.value) for norm in list(norms.input_maps.values())[1:]],
                [float(norm) for norm in list(norms.biases.values())[1:]],
                [float(norm.value) for norm in norms.inner_maps.values()],
                [float(norm) for norm in norms.inner_biases.values()],
                [float(norm.value) for norm in norms.outer_maps.values()],
            ]
        ).T
        for title, norms in moved.items()
    }
    largest = 100 * max(values.max() for values in maps.values())
    for axis, (title, values) in zip(
        np.atleast_1d(figure.subplots(1, len(maps), sharey=True)), maps.items(), strict=True
    ):
        image = axis.imshow(100 * values, cmap="Blues", vmin=0, vmax=largest, aspect="auto")
        axis.set_title(title)
        axis.set_xticks(range(5), ["$W'_1$", "$b'_3$", "$W'_2$", "$b'_2$", "$W'_3$"])
        axis.set_yticks(range(len(values)), [f"layer {i}" for i in range(len(values))])
        for (i, j), value in np.ndenumerate(100 * values):
            colour = "white" if value > largest / 2 else "black"
            axis.text(j, i, f"{value:z.1f}" if value else "0", ha="center", va="center", color=colour, fontsize="small")
    figure.colorbar(image, ax=figure.axes, label="% of the parameter's size")
    return figure


@styled
def draw_losses(losses: Float[np.ndarray, "steps"], before: float, after: float) -> Figure:
    """Draw the loss at each training step, and that on held-out text before and after."""
    figure = Figure(figsize=(7.0, 4.0))
    axis = figure.subplots()
    axis.plot(range(len(losses)), losses, color="tab:blue", linewidth=1, label="at a step, text trained on")
    axis.plot([0, len(losses)], [before, after], "o", color="tab:orange", label="held-out text, before and after")
    axis.set_xlabel("step")
    axis.set_ylabel("loss, nats per token")
    axis.legend()
    return figure
