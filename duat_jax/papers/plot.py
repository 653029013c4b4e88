"""Plots of errors of sums of sigmoids, of outputs after every prompt, and of parameters that depend on the prompt."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.papers.sigmoids import ApproximationErrors


@styled
def draw_approximation_errors(
    errors: Mapping[int, Mapping[str, ApproximationErrors]], neurons: Sequence[int]
) -> Figure:
    """Plot the largest error and the root mean square against `N`: the mean over fits, and the band of all of them.

    Args:
        errors: by the number of dimensions, a column each, and the name of the function: errors `[sizes, seeds]`.
        neurons: the numbers of sigmoids, `N`. The dotted line is `N^{−1/2}` from the largest error at the first.
    """
    figure = Figure(figsize=(1.0 + 3.2 * len(errors), 5.6))
    axes = figure.subplots(2, len(errors), squeeze=False, sharex=True, sharey="col")
    sizes = np.asarray(neurons, float)
    for j, (dimensions, functions) in enumerate(errors.items()):
        for i, (name, of_function) in enumerate(functions.items()):
            for axis, error in zip(axes[:, j], map(np.asarray, of_function), strict=True):
                axis.plot(sizes, np.exp(np.log(error).mean(1)), marker=".", color=f"C{i}", label=name)
                axis.fill_between(sizes, error.min(1), error.max(1), color=f"C{i}", alpha=0.15, linewidth=0)
        for row, axis in enumerate(axes[:, j]):
            highest = max(np.asarray(of_function[row])[0].max() for of_function in functions.values())
            axis.plot(sizes, highest * (sizes / sizes[0]) ** -0.5, ":", color="black", label=r"$N^{-1/2}$")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
        axes[0, j].set_title(f"{dimensions} dimension{'s' * (dimensions > 1)}")
        axes[1, j].set_xlabel("N")
    axes[0, 0].set_ylabel("largest error")
    axes[1, 0].set_ylabel("root mean square of the error")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


@styled
def draw_prompted_outputs(
    sequence: Float[Array, "numbers"],
    targets: Float[Array, "prompts numbers"],
    outputs: Mapping[str, Float[Array, "prompts numbers"]],
    prompts: Sequence[str],
) -> Figure:
    """Plot one sequence, and each network's outputs after every prompt (lines) with the targets (circles).

    Args:
        sequence: the sequence that all networks read.
        targets: the target of every prompt.
        outputs: the outputs after every prompt, by the name of the network.
        prompts: names of the prompts. The dotted line is the mean of all targets.
    """
    figure = Figure(figsize=(3.4 + 2.7 * len(outputs), 3.2))
    read, *axes = figure.subplots(1, 1 + len(outputs), sharey=True)
    places = np.arange(1, len(sequence) + 1)
    read.plot(places, np.asarray(sequence), color="black", marker=".")
    read.set_title("sequence")
    for axis, (title, of_prompts) in zip(axes, outputs.items(), strict=True):
        lines, goals = np.asarray(of_prompts), np.asarray(targets)
        for i, (name, line, goal) in enumerate(zip(prompts, lines, goals, strict=True)):
            axis.plot(places, line, color=f"C{i}", label=name)
            axis.plot(places, goal, "o", color=f"C{i}", fillstyle="none")
        axis.plot(places, goals.mean(0), ":", color="black", label="blind to the prompt")
        axis.set_title(title)
    for axis in (read, *axes):
        axis.set_xlabel("place")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


@styled
def draw_parameter_changes(changes: Mapping[str, Mapping[str, Float[Array, "prompts prompts"]]]) -> Figure:
    """Plot the relative change of every parameter between two prompts as coloured cells; white is exactly zero.

    Args:
        changes: what `duat.papers.parameter_changes` returns, by the name of the network. A cell is the mean over all
            pairs of different prompts.
    """
    symbols = list(next(iter(changes.values())))
    table = np.array([[_of_different(of_network[symbol]) for symbol in symbols] for of_network in changes.values()])
    figure = Figure(figsize=(2.2 + 0.72 * len(symbols), 1.0 + 0.42 * len(changes)))
    axes = figure.subplots()
    axes.imshow(np.ma.masked_equal(table, 0), cmap="Oranges", vmin=0, vmax=1.5, aspect="auto")
    for (row, column), change in np.ndenumerate(table):
        small = f"{change:.0e}" if change < 1e-3 else f"{change:z.2f}"
        axes.text(column, row, small if change else "0", ha="center", va="center", fontsize="small")
    axes.set_xticks(range(len(symbols)), [_typeset(symbol) for symbol in symbols])
    axes.set_yticks(range(len(changes)), list(changes))
    axes.set_title("relative change of each parameter between two prompts")
    return figure


def _of_different(pairs: Array) -> float:
    """Return the mean over pairs of different prompts."""
    values = np.asarray(pairs)
    return float(values[~np.eye(len(values), dtype=bool)].mean())


def _typeset(symbol: str) -> str:
    """Return the formula of a symbol, `B12`, in TeX."""
    return f"${symbol[0]}_{{{symbol[1:]}}}$"
