"""The picture of every network's error, beside that of the mean of all prompts' targets."""

from typing import Any

from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.papers import PROMPT_NETWORKS, PROMPT_TASKS
from experiments.estimate import estimate
from experiments.pictures.panels import OTHER, OURS, dots
from experiments.run import frames_of


def errors_of_networks() -> dict[str, Any]:
    """Return every network's error on both tasks, and that of the mean of all prompts' targets."""
    frames = frames_of("approximation")
    networks, blind = frames["networks"], frames["blind"]
    networks = networks[networks.part == "compared"]
    return {
        task: {
            "networks": {
                f"{kind}, {layers} layer{'s' * (layers > 1)}": estimate(
                    networks[
                        (networks.task == task) & (networks.network == kind) & (networks.layers == layers)
                    ].error.to_numpy()
                )[:3]
                for layers in (1, 2)
                for kind in PROMPT_NETWORKS
            },
            "blind": float(blind[blind.task == task].error.mean()),
        }
        for task in PROMPT_TASKS
    }


@styled
def draw_networks(numbers: dict[str, Any]) -> Figure:
    """Draw the error of every network on both tasks."""
    figure = Figure(figsize=(8.2, 2.8))
    for axes, (task, of_task) in zip(figure.subplots(1, 2, sharey=True), numbers.items(), strict=True):
        dots(
            axes,
            of_task["networks"],
            {name: OURS if name.startswith("transformer") else OTHER for name in of_task["networks"]},
        )
        axes.axvline(of_task["blind"], color="black", linestyle=":")
        axes.text(of_task["blind"], -0.4, "blind to\nthe prompt ", ha="right", va="top", fontsize="small")
        axes.set_xlim(0, None)
        axes.set_title(task)
        axes.set_xlabel("error (root mean square)")
    return figure
