"""Pictures of the outputs after every prompt, and of the parameters that the prompt moved."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled


@styled
def draw_outputs(
    content: Float[np.ndarray, "content"],
    targets: Float[np.ndarray, "prompts content"],
    written: Mapping[str, Float[np.ndarray, "prompts content"]],
    prompts: Sequence[str],
) -> Figure:
    """Plot one sequence, and each network's outputs after every prompt (lines) with the targets (circles)."""
    # The dotted line is the best output that doesn't depend on the prompt.
    figure = Figure(figsize=(3.4 + 2.7 * len(written), 3.2))
    read, *axes = figure.subplots(1, 1 + len(written), sharey=True)
    places = np.arange(1, len(content) + 1)
    read.plot(places, content, color="black", marker=".")
    read.set_title("what all read")
    for axis, (title, of_prompts) in zip(axes, written.items(), strict=True):
        for i, (name, line, goal) in enumerate(zip(prompts, of_prompts, targets, strict=True)):
            axis.plot(places, line, color=f"C{i}", label=name)
            axis.plot(places, goal, "o", color=f"C{i}", fillstyle="none")
        axis.plot(places, targets.mean(0), ":", color="black", label="blind to the prompt")
        axis.set_title(title)
    for axis in (read, *axes):
        axis.set_xlabel("place")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


@styled
def draw_changes(changes: Mapping[str, Mapping[str, float]]) -> Figure:
    """Plot a table of relative changes between two prompts as coloured cells; white is exactly zero."""
    symbols = list(next(iter(changes.values())))
    table = np.array([[of_one[symbol] for symbol in symbols] for of_one in changes.values()])
    figure = Figure(figsize=(2.2 + 0.72 * len(symbols), 1.0 + 0.42 * len(changes)))
    axes = figure.subplots()
    axes.imshow(np.ma.masked_equal(table, 0), cmap="Oranges", vmin=0, vmax=1.5, aspect="auto")
    for (row, column), change in np.ndenumerate(table):
        small = f"{change:.0e}" if change < 1e-3 else f"{change:.2f}"
        axes.text(column, row, small if change else "0", ha="center", va="center", fontsize="small")
    axes.set_xticks(range(len(symbols)), [_typeset(symbol) for symbol in symbols])
    axes.set_yticks(range(len(changes)), list(changes))
    axes.set_title("relative change of each parameter between two prompts")
    return figure


def _typeset(symbol: str) -> str:
    """Format `W'1,2` as `$W'_{1,2}$`."""
    name = symbol.rstrip("0123456789,")
    return f"${name}_{{{symbol[len(name) :]}}}$"
