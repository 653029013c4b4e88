"""Tables and pictures of docs/findings/approximation.md."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.approximation import moved_parameters, sigmoids
from experiments.approximation.selection import FOUR, SHIFTS, TASKS
from experiments.approximation.selection_plot import draw_changes, draw_outputs
from experiments.approximation.sigmoids import FIT_STEPS, NEURONS
from experiments.approximation.sigmoids_plot import draw_errors
from experiments.markdown import Fields, interval, sections, table


def _off_diagonal(pairs: Any) -> Any:
    """Return the mean over pairs of different prompts, the last two axes."""
    different = ~np.eye(pairs.shape[-1], dtype=bool)
    return np.asarray(pairs)[..., different].mean(-1)


def _exponent(errors: Any, which: str) -> sigmoids.Slope:
    return sigmoids.slope(np.array(NEURONS, float), np.array([errors[str(n)][which] for n in NEURONS]))


def _slope(errors: Any, which: str) -> str:
    """Return the exponent of every seed's errors, their mean and its interval."""
    of_seeds = np.array([errors[str(n)][which] for n in NEURONS]).T
    return interval([sigmoids.slope(np.array(NEURONS, float), seed[:, None]).slope for seed in of_seeds], 2)


def _fits_table(results: dict[str, Any]) -> list[str]:
    head = ["function", "dimensions", *(f"N = {n}" for n in NEURONS), "slope", "known", "slope of the rms"]

    def row(name: str, dimensions: str, errors: dict[str, Any], known: str, slopes: list[str]) -> list[str]:
        largest = [f"{np.exp(np.mean(np.log(errors[str(n)]['supremum']))):.1e}" for n in NEURONS]
        return [name, dimensions, *largest, slopes[0], known, slopes[1]]

    def fitted(names: str, errors: dict[str, Any]) -> list[str]:
        name, dimensions = names.split(", ")
        known = f"{-1 / int(dimensions):.2f}" if name == "cone" else "any power"
        return row(name, dimensions, errors, known, [_slope(errors, which) for which in sigmoids.Errors._fields])

    def steps(name: str, errors: dict[str, Any]) -> list[str]:
        exponents = [f"{_exponent(errors, which).slope:.2f}" for which in sigmoids.Errors._fields]
        return row(f"{name}, in steps", "1", errors, "-1.00", exponents)

    rows = [fitted(*item) for item in results["fits"].items()]
    return table(head, rows + [steps(*item) for item in results["staircases"].items()])


def _networks_table(results: dict[str, Any]) -> list[str]:
    head = ["task", "layers", "network", "parameters", "rate", "error, mean over prompts", "of each prompt"]
    rows = []
    for result in sorted(results["networks"].values(), key=lambda result: result["sizes"]["task"] == SHIFTS):
        sizes, errors = result["sizes"], np.array(result["error"])
        by_prompt = " / ".join(f"{error:.3f}" for error in errors.mean(0))
        numbers = [f"{result['parameters']:,}", f"{result['rate']:g}", interval(errors.mean(1)), by_prompt]
        rows.append([sizes["task"], str(sizes["layers"]), sizes["kind"], *numbers])
    for task, errors in results["blind"].items():
        by_prompt = " / ".join(f"{error:.3f}" for error in errors)
        rows.append([task, "", "*the best that is blind to the prompt*", "", "", f"{np.mean(errors):.3f}", by_prompt])
    return table(head, rows)


def _apart(results: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the analysed networks of all seeds, for each task and kind."""
    return {
        (network["sizes"]["task"], network["sizes"]["kind"]): network["taken apart"]
        for network in results["networks"].values()
        if "taken apart" in network
    }


def _mean_changes(networks: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the change of every parameter, the mean over pairs of prompts, for each seed."""
    return {
        symbol: [float(_off_diagonal(np.array(network["changes"][symbol]))) for network in networks]
        for symbol in networks[0]["changes"]
    }


def _change(values: list[float]) -> str:
    if not any(values):
        return "0"
    return f"{max(values):.0e}" if max(values) < 1e-3 else interval(values, 2)


def _changes_table(results: dict[str, Any]) -> list[str]:
    changes_of = {names: _mean_changes(networks) for names, networks in _apart(results).items()}
    symbols = list(next(iter(changes_of.values())))
    written = {symbol: re.sub(r"\d,\d|\d", lambda index: f"_{{{index[0]}}}", symbol) for symbol in symbols}
    rows = [
        [f"`{written[symbol]}`", *(_change(changes[symbol]) for changes in changes_of.values())] for symbol in symbols
    ]
    return table(["parameter", *(", ".join(reversed(names)) for names in changes_of)], rows)


def _own_sources(corner: tuple[bool, ...]) -> str:
    """Return the names of the sources that come from the prompt itself."""
    own = (name for name, is_own in zip(moved_parameters.SOURCES, corner, strict=True) if is_own)
    return " + ".join(own) or "nothing"


def _sources_table(results: dict[str, Any]) -> list[str]:
    apart = _apart(results)
    rows = []
    for i, corner in enumerate(moved_parameters.CORNERS):
        own = _own_sources(corner)
        ways = [interval([network["way"]["held"][i] for network in networks], 2) for networks in apart.values()]
        rows.append([own, *ways])
    again = {"rerun weights": "*run again* with the other's patterns", "rerun biases": "*run again* with its `c_j`"}
    for name, label in again.items():
        ways = [interval([network["way"][name] for network in networks], 2) for networks in apart.values()]
        rows.append([label, *ways])
    return table(["from the prompt itself", *(", ".join(reversed(names)) for names in apart)], rows)


def _ablation_table(results: dict[str, Any]) -> list[str]:
    apart = _apart(results)
    corners = {corner: i for i, corner in enumerate(moved_parameters.CORNERS)}
    held = {"weights": corners[True, False, True], "biases": corners[True, True, False]}
    labels = {
        "as trained": lambda error: error["held"][-1],
        "weights of another prompt, held": lambda error: error["held"][held["weights"]],
        "patterns of another prompt, run again": lambda error: error["rerun weights"],
        "mean patterns, run again": lambda error: error["mean pattern"],
        "biases of another prompt, held": lambda error: error["held"][held["biases"]],
        "biases of another prompt, run again": lambda error: error["rerun biases"],
    }
    rows = [
        [
            label,
            *(interval([np.mean(of(network["error"])) for network in networks]) for networks in apart.values()),
        ]
        for label, of in labels.items()
    ]
    return table(["error", *(", ".join(reversed(names)) for names in apart)], rows)


def _depth_table(results: dict[str, Any]) -> list[str]:
    rows = []
    for result in results["depth and width"].values():
        sizes = result["sizes"]
        layers, neurons = sizes["layers"], sizes["neurons"]
        numbers = [str(layers), str(neurons), str(layers * neurons), f"{result['parameters']:,}", f"{result['rate']:g}"]
        rows.append([sizes["kind"], *numbers, interval(np.array(result["error"]).mean(1))])
    head = ["network", "layers", "neurons a layer", "N in all", "parameters", "rate", "error"]
    return table(head, sorted(rows, key=lambda row: row[0]))


def _further_table(results: dict[str, Any]) -> list[str]:
    rows = []
    for result in results["further"].values():
        sizes = result["sizes"]
        place = [sizes["task"], sizes["kind"], str(sizes["heads"]), sizes["prompt"]]
        blind = f"{np.mean(results['blind'][sizes['task']]):.3f}"
        numbers = [f"{result['parameters']:,}", f"{result['rate']:g}"]
        rows.append([*place, *numbers, interval(np.array(result["error"]).mean(1)), blind])
    return table(["task", "network", "heads", "prompt's vector", "parameters", "rate", "error", "blind"], rows)


def tables_of(results: dict[str, Any]) -> str:
    """Return all tables, in Markdown."""
    parts = {
        "How the error falls with N": _fits_table,
        "Errors of every network": _networks_table,
        "With more heads, and with the prompt in other places": _further_table,
        "Which parameters moved": _changes_table,
        "What each source does": _sources_table,
        "Without one source": _ablation_table,
        "Depth and width": _depth_table,
    }
    return sections({title: lines(results) for title, lines in parts.items()})


def numbers_of(results: dict[str, Any]) -> Fields:
    """Return further numbers of the text, by name: root mean squares of fits, and errors with both prompts' sources."""
    fields: Fields = {}
    for name, errors in results["fits"].items():
        many = np.array([n for n in NEURONS if n >= 16], float)
        of_many = np.array([errors[f"{n:.0f}"]["root_mean_square"] for n in many])
        fields[f"rms from 16 / {name}"] = f"{sigmoids.slope(many, of_many).slope:.2f}"
        for n in NEURONS:
            fields[f"rms / {name} / {n}"] = f"{np.mean(errors[str(n)]['root_mean_square']):.3f}"
    for (task, kind), networks in _apart(results).items():
        for i, corner in enumerate(moved_parameters.CORNERS):
            own = _own_sources(corner)
            of_seeds = [np.mean(network["error"]["held"][i]) for network in networks]
            fields[f"error of sources / {own} / {kind}, {task}"] = f"{np.mean(of_seeds):.3f}"
    return fields


def draw_pictures(results: dict[str, Any]) -> None:
    """Draw the pictures of docs/findings/approximation.md."""
    fits = {
        dimensions: {
            name: sigmoids.Errors(
                *(
                    jnp.array([results["fits"][f"{name}, {dimensions}"][str(n)][which] for n in NEURONS])
                    for which in sigmoids.Errors._fields
                )
            )
            for name in sigmoids.FUNCTIONS
        }
        for dimensions in FIT_STEPS
    }
    draw_errors(fits, np.array(NEURONS, float)).savefig("docs/findings/approximation.png", dpi=110)
    drawn = [
        network
        for network in results["networks"].values()
        if network["sizes"]["task"] == FOUR and "taken apart" in network
    ]
    curve = drawn[0]["curve"]
    written = {network["sizes"]["kind"]: np.array(network["curve"]["written"][0]) for network in drawn}
    figure = draw_outputs(np.array(curve["content"]), np.array(curve["asked"]), written, list(TASKS[FOUR]))
    figure.savefig("docs/findings/approximation-outputs.png", dpi=110)
    changes = {
        f"{kind}, {task}": {symbol: float(np.mean(values)) for symbol, values in _mean_changes(networks).items()}
        for (task, kind), networks in _apart(results).items()
    }
    draw_changes(changes).savefig("docs/findings/approximation-moved.png", dpi=110)
