"""Pictures of trainings that were followed."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import add_colour_bar, colour_scale, draw_heat, styled
from experiments.emergence.courses import courses
from experiments.emergence.training import HELD_OUT, REPETITION
from experiments.pictures.panels import OTHER, OURS, PALE
from experiments.run import frames_of

Numbers = dict[str, Any]


def parts_along() -> Numbers:
    """Return, of two numbers, the parts by part of the network and segment, and their course by seed."""
    of = courses(frames_of("emergence"))
    found: Numbers = {"steps": of[0].steps.tolist()}
    for number in (HELD_OUT, REPETITION):
        rows: dict[str, Any] = {}
        for course in of:
            for part, parts in course.parts(number).items():
                row = part if part.endswith(("attention", "mlp", "token", "position")) else "norms"
                rows[row] = rows.get(row, 0) + parts / len(of)
        found[number] = {
            "parts": {name: np.round(row, 5).tolist() for name, row in rows.items()},
            "values": [course.values(number).tolist() for course in of],
        }
    return found


@styled
def draw_parts(numbers: Numbers) -> Figure:
    """Draw the parts of the network in the change of two numbers along a training, and the numbers underneath."""
    figure = Figure(figsize=(11.0, 6.4))
    panels = figure.subplots(2, 2, height_ratios=[3, 1.2], sharex=True)
    steps = numbers["steps"]
    followed = [(name, of) for name, of in numbers.items() if name != "steps"]
    for (heat, curve), (name, of) in zip(panels.T, followed, strict=True):
        cells = np.array(list(of["parts"].values()))
        drawn = draw_heat(heat, cells, colour_scale(cells))
        heat.set_yticks(range(len(cells)), list(of["parts"]), fontsize="small")
        heat.set_title(name)
        add_colour_bar(drawn, heat, "part of the change, in nats")
        for values in of["values"]:
            curve.plot(np.arange(len(steps)) - 0.5, values, color=OURS, linewidth=1)
        places = range(0, len(steps), max(1, len(steps) // 4))
        curve.set_xticks([place - 0.5 for place in places], [f"{steps[place]:,.0f}" for place in places])
        curve.set_xlabel("step")
        curve.set_ylabel("nats")
    return figure


@styled
def draw_longer(numbers: Numbers) -> Figure:
    """Draw a panel for each number, with a curve for each training and a line for the embedded model."""
    figure = Figure(figsize=(10.4, 3.2))
    for axes, (name, of) in zip(figure.subplots(1, len(numbers)), numbers.items(), strict=True):
        for colour, (training, course) in zip((OURS, OTHER), list(of.items())[:2], strict=True):
            axes.plot(*course, color=colour, label=training)
        axes.axhline(of["the embedded model"], color=PALE, linestyle="--", label="the embedded model")
        axes.set(title=name, xlabel="step", ylabel="nats")
    axes.legend(fontsize="small")
    return figure
