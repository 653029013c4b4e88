"""Tables of docs/generalization.md, from the stored results."""

from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.generalization.frozen import GROUPS
from experiments.generalization.networks import KINDS, MOVING
from experiments.generalization.tasks import FAMILIES
from experiments.pages import interval, table

RARE, TARGET = "16 functions, unequal", 0.05
Results = dict[str, Any]


def _network(results: Results, study: str, kind: str, width: int | None = None) -> dict[str, Any]:
    width = max(results["settings"]["studies"][study][1]) if width is None else width
    network: dict[str, Any] = results["networks"][f"{study}; {kind}; {width}"]
    return network


def of_networks(results: Results, study: str, kind: str, width: int | None = None) -> list[dict[str, Any]]:
    """Return the measurements of every seed of a network.

    Args:
        results: what was kept.
        study: its name.
        kind: the network's name.
        width: of the Transformer that it is as large as; the largest if absent.
    """
    return _network(results, study, kind, width)["seeds"]


def errors(results: Results, study: str, kind: str, width: int | None = None) -> Float[np.ndarray, "seeds"]:
    """Return the error of every seed of a network.

    Args:
        results: what was kept.
        study: its name.
        kind: the network's name.
        width: of the Transformer that it is as large as; the largest if absent.
    """
    return np.array([network["error"] for network in of_networks(results, study, kind, width)])


def needed(parameters: Float[np.ndarray, "sizes"], error: Float[np.ndarray, "sizes"], target: float) -> float:
    """Return the number of parameters at which the error falls to a target, on a line between two sizes in logarithms.

    Args:
        parameters: of each size, ascending.
        error: of each size.
        target: the error to reach.

    Returns:
        The number; the smallest size if that already reaches the target, and infinity if none does.

    Example:
        >>> needed(np.array([10.0, 1000.0]), np.array([0.1, 0.001]), 0.01)
        100.0
    """
    if not (error <= target).any():
        return float("inf")
    last = int(np.argmax(error <= target))
    if last == 0:
        return float(parameters[0])
    (x0, x1), (y0, y1) = np.log(parameters[last - 1 : last + 1]), np.log(error[last - 1 : last + 1])
    return float(np.round(np.exp(x0 + (np.log(target) - y0) / (y1 - y0) * (x1 - x0)), 9))


def many(results: Results) -> list[str]:
    """Return the names of the studies of equally frequent named functions.

    Args:
        results: what was kept.
    """
    return [study for study in results["blind"] if study != RARE]


def sizes_needed(results: Results, study: str, kind: str) -> Float[np.ndarray, "seeds"]:
    """Return the number of parameters that each seed of a network needs for the target error.

    Args:
        results: what was kept.
        study: its name.
        kind: the network's name.
    """
    widths = results["settings"]["studies"][study][1]
    parameters = np.array([_network(results, study, kind, width)["parameters"] for width in widths], float)
    by_seed = np.array([errors(results, study, kind, width) for width in widths]).T
    return np.array([needed(parameters, of_seed, TARGET) for of_seed in by_seed])


def _needed(numbers: np.ndarray, least: float) -> str:
    """Format the median of numbers of parameters and their range over seeds."""

    def written(number: float) -> str:
        if np.isinf(number):
            return "none"
        return f"≤ {number:,.0f}" if number == least else f"{number:,.0f}"

    low, middle, high = np.sort(numbers)[[0, len(numbers) // 2, -1]]
    return f"{written(middle)} [{written(low)}, {written(high)}]"


def _many(results: Results) -> list[str]:
    rows = []
    for study in many(results):
        for kind in KINDS:
            widths = results["settings"]["studies"][study][1]
            of_sizes = [interval(errors(results, study, kind, width)) for width in widths]
            least = _network(results, study, kind, widths[0])["parameters"]
            rows.append(
                [
                    study,
                    kind,
                    *of_sizes,
                    _needed(sizes_needed(results, study, kind), least),
                    f"{results['blind'][study]:.3f}",
                ]
            )
    sizes = [f"error, width {width}" for width in (8, 16, 32)]
    return table(["functions", "network", *sizes, f"parameters for {TARGET} [range]", "blind"], rows)


def _sizes(results: Results) -> list[str]:
    rows = []
    for study in many(results):
        for kind in KINDS:
            widths = results["settings"]["studies"][study][1]
            rows.append(
                [study, kind, *(f"{of_networks(results, study, kind, width)[0]['parameters']:,}" for width in widths)]
            )
    return table(["functions", "network", *(f"width {width}" for width in (8, 16, 32))], rows)


def by_share(results: Results, kind: str, study: str = RARE) -> Float[np.ndarray, "seeds quarters"]:
    """Return the error on every quarter of the functions, from the most frequent to the rarest.

    Args:
        results: what was kept.
        kind: the network's name.
        study: its name.
    """
    squares = np.array([network["by function"] for network in of_networks(results, study, kind)]) ** 2
    return np.sqrt(squares.reshape(len(squares), 4, -1).mean(-1))


def _rare(results: Results) -> list[str]:
    rows = []
    for kind in KINDS:
        quarters = by_share(results, kind)
        apart = [network["apart"] for network in of_networks(results, RARE, kind)]
        rows.append([kind, *(interval(quarter) for quarter in quarters.T), interval(apart)])
    head = ["network", "most frequent quarter", "second", "third", "rarest quarter", "distance of outputs"]
    return table(head, rows)


def by_count(results: Results, study: str, kind: str) -> dict[str, Float[np.ndarray, "seeds"]]:
    """Return the error after each number of demonstrations.

    Args:
        results: what was kept.
        study: its name.
        kind: the network's name.
    """
    networks = of_networks(results, study, kind)
    return {count: np.array([network["by count"][count] for network in networks]) for count in networks[0]["by count"]}


def _demonstrated(results: Results) -> list[str]:
    rows: list[list[str]] = []
    for study in FAMILIES:
        rows += [
            [study, kind, *(interval(error) for error in by_count(results, study, kind).values())] for kind in KINDS
        ]
        references = of_networks(results, study, KINDS[0])[0]["references"]
        rows += [
            [study, f"*{name}*", *(f"{error:.3f}" for error in of_counts.values())]
            for name, of_counts in references.items()
        ]
    counts = by_count(results, next(iter(FAMILIES)), KINDS[0])
    return table(["functions", "network", *counts], rows)


def _pools(results: Results) -> list[str]:
    rows = []
    for study in [name for name in results["settings"]["studies"] if name.startswith("linear")]:
        for kind in KINDS:
            networks = of_networks(results, study, kind)
            rows.append(
                [study, kind, *(interval([network[which] for network in networks]) for which in ("trained", "error"))]
            )
    return table(["functions", "network", "as in training, any number", "new functions, 16"], rows)


def _frozen(results: Results) -> list[str]:
    rows = []
    for study in results["settings"]["studies"]:
        for kind in KINDS:
            networks = of_networks(results, study, kind)
            groups = [interval([network["frozen"][group] for network in networks]) for group in ("none", *GROUPS)]
            rows.append([study, kind, *groups])
    return table(["functions", "network", "none", *GROUPS], rows)


def _spread(results: Results) -> list[str]:
    symbols = list(of_networks(results, RARE, KINDS[0])[0]["spread"])
    rows = []
    for study in results["settings"]["studies"]:
        for kind in KINDS:
            networks = of_networks(results, study, kind)
            rows.append(
                [study, kind, *(f"{np.mean([n['spread'][symbol] for n in networks]):.2f}" for symbol in symbols)]
            )
    return table(["functions", "network", *(f"`{symbol}`" for symbol in symbols)], rows)


def _tuned(results: Results) -> list[str]:
    rows = []
    for study in results["settings"]["studies"]:
        for kind in KINDS:
            network = _network(results, study, kind)
            rates = results["settings"]["rates"]
            without, with_norms = (
                " / ".join(f"{results['tuned'][f'{study}; {kind}; {norms}'][str(rate)]:.3f}" for rate in rates)
                for norms in results["settings"]["norms"]
            )
            norms = "yes" if network["sizes"]["norms"] else "no"
            rows.append([study, kind, without, with_norms, norms, f"{network['rate']:g}"])
    return table(["functions", "network", "without norms", "with norms", "norms", "rate"], rows)


def best_fixed(results: Results, study: str) -> str:
    """Return the network of a fixed mixing of tokens with the smallest mean error.

    Args:
        results: what was kept.
        study: its name.
    """
    return min((kind for kind in KINDS if kind not in MOVING), key=lambda kind: errors(results, study, kind).mean())


def _decided(results: Results) -> list[str]:
    """Return the ratio of the Transformer's error to that of the best network of fixed mixing, for every study."""
    rows = []
    for study in results["settings"]["studies"]:
        fixed = best_fixed(results, study)
        ratio = errors(results, study, "transformer") / errors(results, study, fixed)
        rows.append([study, fixed, interval(ratio, 2)])
    return table(["functions", "best of fixed mixing", "Transformer's error over its"], rows)


SECTIONS = {
    "The Transformer beside the best network of fixed mixing": _decided,
    "Errors by number of functions and size": _many,
    "Numbers of parameters": _sizes,
    "Errors of frequent and rare functions": _rare,
    "Errors on new functions by number of demonstrations": _demonstrated,
    "Functions in training": _pools,
    "Errors with a group of parameters frozen at its mean": _frozen,
    "Movement of the closed form's parameters": _spread,
    "Learning rates and norms": _tuned,
}


def tables_of(results: Results) -> str:
    """Return the page's tables in Markdown.

    Args:
        results: what was kept.
    """
    lines = []
    for title, make in SECTIONS.items():
        lines += [f"### {title}", "", *make(results), ""]
    return "\n".join(lines[:-1])
