"""Tables of docs/findings/generalization.md, from the stored results."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import getitem
from typing import Any

import numpy as np
from jaxtyping import Float

from experiments.generalization.frozen import GROUPS
from experiments.generalization.measures import COUNTS, UNSEEN_COUNTS
from experiments.generalization.networks import KINDS, MOVING
from experiments.generalization.tasks import FAMILIES
from experiments.generalization.verdicts import (
    EQUAL,
    MANY,
    RARE,
    TARGET,
    errors,
    network_of,
    present,
    quarters,
    sizes_needed,
    verdicts,
)
from experiments.markdown import interval, table

Results = dict[str, Any]


def of_seeds(results: Results, study: str, kind: str, *keys: str) -> np.ndarray:
    """Return a number of every seed of the largest network of a kind."""
    return np.array([reduce(getitem, keys, seed) for seed in network_of(results, study, kind)["seeds"]])


def named(results: Results) -> list[str]:
    """Return the names of the studies of equally frequent named functions."""
    return [study for study in present(results) if study in results["blind"] and study != RARE]


def _needed(results: Results, study: str, kind: str) -> str:
    """Format the median of the parameters that are needed, and their range over seeds."""
    bounds = sizes_needed(results, study, kind)

    def written(low: float, high: float) -> str:
        if low == high:
            return f"{low:,.0f}"
        return f"> {low:,.0f}" if np.isinf(high) else f"< {high:,.0f}"

    ordered = bounds[np.lexsort(bounds.T)]
    low, middle, high = (written(*ordered[i]) for i in (0, len(ordered) // 2, -1))
    return middle if low == high else f"{middle} [{low}, {high}]"


def by_size(results: Results, studies: Sequence[str]) -> list[str]:
    """Return the table of errors by size, and of the parameters for the target."""
    rows, there = [], present(results)
    for study in studies:
        for kind in KINDS if study in there else ():
            widths = results["settings"]["studies"][study][1]
            networks = [network_of(results, study, kind, width) for width in widths]
            sizes = [
                f"{interval(errors(results, study, kind, width))} ({network['parameters']:,})"
                for width, network in zip(widths, networks, strict=True)
            ]
            rows.append([study, kind, *sizes, _needed(results, study, kind)])
    head = ["functions", "network", "smallest (parameters)", "middle", "largest", f"parameters for {TARGET}"]
    return table(head, rows)


def _named(results: Results) -> list[str]:
    rows = [
        [
            study,
            kind,
            interval(errors(results, study, kind)),
            f"{results['blind'][study]:.3f}",
            interval(of_seeds(results, study, kind, "apart")),
        ]
        for study in named(results)
        for kind in KINDS
    ]
    return table(["functions", "network", "error", "blind to the prompt", "distance of outputs"], rows)


def _rare(results: Results) -> list[str]:
    rows = [
        [
            kind,
            *(interval(quarter) for quarter in quarters(results, kind, RARE)),
            interval(quarters(results, kind, EQUAL)[-1]),
            interval(of_seeds(results, RARE, kind, "apart, rarest")),
        ]
        for kind in (KINDS if RARE in present(results) else ())
    ]
    of_quarters = ["most frequent quarter", "second", "third", "rarest quarter"]
    return table(["network", *of_quarters, "the same, equally frequent", "distance of rarest outputs"], rows)


def by_count(results: Results, study: str, kind: str) -> dict[str, Float[np.ndarray, "seeds"]]:
    """Return the error after each number of demonstrations."""
    counts = network_of(results, study, kind)["seeds"][0]["by count"]
    return {count: of_seeds(results, study, kind, "by count", count) for count in counts}


def _demonstrated(results: Results) -> list[str]:
    rows: list[list[str]] = []
    for study in filter(FAMILIES.__contains__, present(results)):
        rows += [
            [study, kind, *(interval(error) for error in by_count(results, study, kind).values())] for kind in KINDS
        ]
        references = network_of(results, study, KINDS[0])["seeds"][0]["references"]
        rows += [
            [study, f"*{name}*", *(f"{error:.3f}" for error in of_counts.values())]
            for name, of_counts in references.items()
        ]
    return table(["functions", "network", *map(str, (*COUNTS, *UNSEEN_COUNTS))], rows)


def _pools(results: Results) -> list[str]:
    rows = [
        [study, kind, interval(of_seeds(results, study, kind, "trained")), interval(errors(results, study, kind))]
        for study in present(results)
        if study.startswith("linear")
        for kind in KINDS
    ]
    return table(["functions", "network", "as in training, any number", "new functions, 16"], rows)


def _longer(results: Results) -> list[str]:
    rows = []
    for study in results["settings"]["longer"]:
        if (longer := results["networks"].get(f"{study}; longer")) and study in present(results):
            kind = longer["sizes"]["kind"]
            errors_of = errors(results, study, kind), np.array([seed["error"] for seed in longer["seeds"]])
            moving = (errors(results, study, mover) for mover in MOVING)
            rows.append([study, kind, *map(interval, (*errors_of, *moving))])
    return table(
        ["functions", "closest network of fixed mixing", "as long as others", "four times as long", *MOVING], rows
    )


def _frozen(results: Results) -> list[str]:
    rows = [
        [
            study,
            kind,
            *(interval(of_seeds(results, study, kind, "frozen", group)) for group in ("none", *GROUPS)),
            f"{results['blind'].get(study, 1.0):.3f}",
        ]
        for study in present(results)
        for kind in KINDS
    ]
    return table(["functions", "network", "none", *GROUPS, "blind to the prompt"], rows)


def _spread(results: Results) -> list[str]:
    symbols = list(network_of(results, EQUAL, "transformer")["seeds"][0]["spread"])

    def row(study: str, kind: str) -> list[str]:
        seeds = [seed["spread"] for seed in network_of(results, study, kind)["seeds"]]
        return [f"{np.mean([of[symbol] for of in seeds]):.2f}" if symbol in seeds[0] else "" for symbol in symbols]

    rows = [[study, kind, *row(study, kind)] for study in present(results) for kind in KINDS]
    return table(["functions", "network", *(f"`{symbol}`" for symbol in symbols)], rows)


def tuned(results: Results) -> list[str]:
    """Return the table of tuning: the errors of every rate with and without norms, and what was chosen."""
    rates = results["settings"]["rates"]

    def tried(study: str, kind: str, norms: bool) -> str:
        of_rates = results["tuned"].get(f"{study}; {kind}; {norms}", {})
        errors = (of_rates[str(rate)] for rate in rates if of_rates)
        return " / ".join("diverged" if error > DIVERGED else f"{error:.3f}" for error in errors)

    rows = []
    for study in present(results):
        for kind in KINDS:
            network = network_of(results, study, kind)
            norms = "yes" if network["sizes"]["norms"] else "no"
            rows.append(
                [study, kind, tried(study, kind, False), tried(study, kind, True), norms, f"{network['rate']:g}"]
            )
    return table(["functions", "network", "without norms", "with norms", "norms", "rate"], rows)


DIVERGED = 1e3
"""The error from which on a network counts as one that has diverged."""

SECTIONS: dict[str, Callable[[Results], list[str]]] = {
    "Verdicts": verdicts,
    "Many functions by size": partial(by_size, studies=MANY),
    "Named functions": _named,
    "Frequent and rare functions": _rare,
    "New functions by number of demonstrations": _demonstrated,
    "Four times as long": _longer,
    "A pool of functions in training": _pools,
    "Groups of parameters frozen at their means": _frozen,
    "Movement of the closed form's parameters": _spread,
    "Learning rates and norms": tuned,
}
"""The tables of the page by their headings."""


def tables_of(results: Results, sections: Mapping[str, Callable[[Results], list[str]]] = SECTIONS) -> str:
    """Return the page's tables in Markdown."""
    lines = []
    for title, make in sections.items():
        head, line, *rows = make(results)
        lines += [f"### {title}", "", head, line, *rows, ""] if rows else []
    return "\n".join(lines[:-1])
