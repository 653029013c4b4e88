"""Claims: the decrease of the error of N sigmoids, and the parameters by which a prompt selects a network's function.

With equal parameters and equal training: a perceptron, a Transformer whose pattern is fixed, and a Transformer.

Run `make approximation`; it writes experiments/results/approximation.json, and the tables and pictures
of docs/approximation.md.  What was measured is kept in a journal: a killed run goes on.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from duat_jax.cli.compiled import keep_compiled
from duat_jax.evaluation.journal import Journal
from experiments.approximation import moved_parameters, selection, sigmoids
from experiments.approximation.selection import CONTENT, KINDS, TASKS, Sizes, count, matched
from experiments.approximation.selection_plot import draw_changes, draw_outputs
from experiments.approximation.sigmoids_plot import draw_errors
from experiments.environment import environment
from experiments.pages import Fields, cells, interval, table, write_pages

RESULTS, WORK = Path("experiments/results/approximation.json"), Path("experiments/results/work/approximation.jsonl")
SEEDS, STEPS, SHORT = 3, 3000, 1500
NEURONS, FIT_STEPS = (4, 8, 16, 32, 64), {1: 2000, 2: 2000, 8: 4000}
LAYERS, WIDTHS = (1, 2, 4), (32, 128)
FOUR, SHIFTS = TASKS
TESTED, TAKEN_APART = 2000, 16
"""The numbers of sequences that errors are taken on, and of those that are unrolled."""


def _fitted(name: str, dimensions: int, neurons: int) -> dict[str, list[float]]:
    function, keys = sigmoids.FUNCTIONS[name], jax.random.split(jax.random.key(0), SEEDS)
    with jax.enable_x64(True):
        units = sigmoids.fit(function, keys, neurons=neurons, dimensions=dimensions, steps=FIT_STEPS[dimensions])
        return _plain(sigmoids.errors(function, units, jax.random.key(1))._asdict())


def _steps(name: str, neurons: int) -> dict[str, list[float]]:
    function = sigmoids.FUNCTIONS[name]
    with jax.enable_x64(True):
        units = jax.tree.map(lambda a: a[None], sigmoids.staircase(function, neurons))
        return _plain(sigmoids.errors(function, units, jax.random.key(1))._asdict())


def _plain(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), tree)


def _off_diagonal(pairs: Any) -> Any:
    """Return the mean over pairs of different prompts, the last two axes."""
    different = ~np.eye(pairs.shape[-1], dtype=bool)
    return np.asarray(pairs)[..., different].mean(-1)


def _error_of_own(written: Any, target: Any) -> Any:
    """Return the error against the function of the own prompt, over all other prompts: `[..., prompts]`."""
    squares = np.asarray((written - target.swapaxes(0, 1)[:, :, None]) ** 2).mean((-4, -1))
    different = ~np.eye(squares.shape[-1], dtype=bool)
    return np.sqrt((squares * different).sum(-1) / different.sum(-1))


def _taken_apart(network: Any, task: str, content: Any) -> dict[str, Any]:
    """Return the changes of one network's parameters, and the effect of each source."""
    target, after = (
        selection.targets(task, content),
        selection.outputs(_with_seed_axis(network), content)[0].swapaxes(0, 1),
    )
    exchanged = moved_parameters.exchange(network, content)
    written = {
        "held": exchanged.corners,
        "rerun weights": exchanged.rerun_weights,
        "rerun biases": exchanged.rerun_biases,
    }
    mean_pattern = moved_parameters.with_mean_patterns(network, content).swapaxes(0, 1)
    return {
        "changes": _plain(moved_parameters.changes(network, content)),
        "way": {name: _plain(moved_parameters.way(y, after)) for name, y in written.items()},
        "error": {name: _plain(_error_of_own(y, target)) for name, y in written.items()}
        | {"mean pattern": _plain(selection.root_mean_square(mean_pattern - target))},
        "closes within": float(jnp.abs(exchanged.corners[-1] - after[:, :, None]).max()),
    }


def _with_seed_axis(network: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], network)


def _trained(sizes: Sizes, steps: int, taken_apart: bool) -> dict[str, Any]:
    began = time.perf_counter()
    networks = selection.train(sizes, jax.random.split(jax.random.key(0), SEEDS), steps=steps)
    jax.block_until_ready(networks)
    seconds = time.perf_counter() - began
    content = selection.sequences(jax.random.key(1), TESTED)
    off = selection.outputs(networks, content) - selection.targets(sizes.task, content)
    curve = jnp.sin(jnp.linspace(0.0, 5.0, CONTENT))[None]
    result = {
        "sizes": asdict(sizes),
        "parameters": count(sizes),
        "seconds": seconds,
        "error": _plain(selection.root_mean_square(off)),
        "largest": _plain(jnp.abs(off).max((-2, -1))),
        "curve": {
            "content": _plain(curve[0]),
            "asked": _plain(selection.targets(sizes.task, curve)[:, 0]),
            "written": _plain(selection.outputs(networks, curve)[:, :, 0]),
        },
    }
    if taken_apart:
        networks_by_seed = [jax.tree.map(lambda leaf, i=i: leaf[i], networks) for i in range(SEEDS)]
        result["taken apart"] = [
            _taken_apart(network, sizes.task, content[:TAKEN_APART]) for network in networks_by_seed
        ]
    return result


def _like(kind: str, task: str, layers: int) -> Sizes:
    """Return a network with as many parameters as the Transformer of the same depth."""
    transformer = Sizes(kind="transformer", task=task, layers=layers, features=32, neurons=64)
    return matched(replace(transformer, kind=kind), count(transformer))


def _compared() -> Iterator[Sizes]:
    """Return the compared networks: every kind, with one layer and with two."""
    for layers in (2, 1):
        for task in TASKS:
            for kind in KINDS:
                yield _like(kind, task, layers)


def _varied() -> Iterator[Sizes]:
    """Return the networks with varied depth and width."""
    for layers in LAYERS:
        for neurons in WIDTHS:
            for kind in ("perceptron", "transformer"):
                yield Sizes(kind=kind, task=FOUR, layers=layers, features=32, neurons=neurons)


def _name(sizes: Sizes) -> str:
    return f"{sizes.task}, {sizes.kind}, {sizes.layers} layers of {sizes.neurons}"


def measure() -> dict[str, Any]:
    """Run all measurements, and return the results as plain data."""
    WORK.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(WORK, {"seeds": SEEDS, "steps": STEPS, "tested": TESTED, "taken apart": TAKEN_APART})

    def trained(sizes: Iterator[Sizes], steps: int, taken_apart: int) -> dict[str, Any]:
        return {
            _name(network_sizes): journal.once(
                f"{_name(network_sizes)}, {steps} steps",
                partial(_trained, network_sizes, steps, network_sizes.layers == taken_apart),
            )
            for network_sizes in sizes
        }

    compared = trained(_compared(), STEPS, 2)
    fits = {
        f"{name}, {dimensions}": {
            str(neurons): journal.once(
                f"{name}, {dimensions} dimensions, {neurons} neurons", partial(_fitted, name, dimensions, neurons)
            )
            for neurons in NEURONS
        }
        for dimensions in FIT_STEPS
        for name in sigmoids.FUNCTIONS
    }
    steps = {
        name: {str(n): journal.once(f"{name}, {n} steps", partial(_steps, name, n)) for n in NEURONS}
        for name in sigmoids.FUNCTIONS
    }
    content = selection.sequences(jax.random.key(1), TESTED)
    return {
        "environment": environment(),
        "seeds": SEEDS,
        "steps": {"networks": STEPS, "depth and width": SHORT, "fits": FIT_STEPS},
        "blind": {task: _plain(selection.blind(task, content)) for task in TASKS},
        "fits": fits,
        "staircases": steps,
        "networks": compared,
        "depth and width": trained(_varied(), SHORT, 0),
    }


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
    head = ["task", "layers", "network", "parameters", "error, mean over prompts", "of each prompt"]
    rows = []
    for result in sorted(results["networks"].values(), key=lambda result: result["sizes"]["task"] == SHIFTS):
        sizes, errors = result["sizes"], np.array(result["error"])
        by_prompt = " / ".join(f"{error:.3f}" for error in errors.mean(0))
        numbers = [f"{result['parameters']:,}", interval(errors.mean(1)), by_prompt]
        rows.append([sizes["task"], str(sizes["layers"]), sizes["kind"], *numbers])
    for task, errors in results["blind"].items():
        by_prompt = " / ".join(f"{error:.3f}" for error in errors)
        rows.append([task, "", "*the best that is blind to the prompt*", "", f"{np.mean(errors):.3f}", by_prompt])
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
    rows = [[f"`{symbol}`", *(_change(changes[symbol]) for changes in changes_of.values())] for symbol in symbols]
    return table(["parameter", *(", ".join(reversed(names)) for names in changes_of)], rows)


def _sources_table(results: dict[str, Any]) -> list[str]:
    apart = _apart(results)
    rows = []
    for i, corner in enumerate(moved_parameters.CORNERS):
        own = " + ".join(name for name, is_own in zip(moved_parameters.SOURCES, corner, strict=True) if is_own)
        ways = [interval([network["way"]["held"][i] for network in networks], 2) for networks in apart.values()]
        rows.append([own or "nothing", *ways])
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
        numbers = [str(layers), str(neurons), str(layers * neurons), f"{result['parameters']:,}"]
        rows.append([sizes["kind"], *numbers, interval(np.array(result["error"]).mean(1))])
    head = ["network", "layers", "neurons a layer", "N in all", "parameters", "error"]
    return table(head, sorted(rows, key=lambda row: row[0]))


def _page(results: dict[str, Any]) -> str:
    parts = {
        "How the error falls with N": _fits_table,
        "Errors of every network": _networks_table,
        "Which parameters moved": _changes_table,
        "What each source does": _sources_table,
        "Without one source": _ablation_table,
        "Depth and width": _depth_table,
    }
    return "\n".join(line for title, table in parts.items() for line in (f"### {title}", "", *table(results), ""))


def _pictures(results: dict[str, Any]) -> None:
    fits = {
        dimensions: {
            name: sigmoids.Errors(
                *(
                    np.array([results["fits"][f"{name}, {dimensions}"][str(n)][which] for n in NEURONS])
                    for which in sigmoids.Errors._fields
                )
            )
            for name in sigmoids.FUNCTIONS
        }
        for dimensions in FIT_STEPS
    }
    draw_errors(fits, np.array(NEURONS, float)).savefig("docs/approximation.png", dpi=110)
    drawn = [
        network
        for network in results["networks"].values()
        if network["sizes"]["task"] == FOUR and "taken apart" in network
    ]
    curve = drawn[0]["curve"]
    written = {network["sizes"]["kind"]: np.array(network["curve"]["written"][0]) for network in drawn}
    figure = draw_outputs(np.array(curve["content"]), np.array(curve["asked"]), written, list(TASKS[FOUR]))
    figure.savefig("docs/approximation-outputs.png", dpi=110)
    changes = {
        f"{kind}, {task}": {symbol: float(np.mean(values)) for symbol, values in _mean_changes(networks).items()}
        for (task, kind), networks in _apart(results).items()
    }
    draw_changes(changes).savefig("docs/approximation-moved.png", dpi=110)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: what was kept.
    """
    tables = _page(results)
    return {"tables": tables, **cells(tables)}


def main() -> None:
    """Run all measurements, and write the results."""
    keep_compiled()
    results = measure()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    _pictures(results)
    write_pages()


if __name__ == "__main__":
    main()
