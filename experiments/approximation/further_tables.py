"""Tables and verdicts on eight numbers, jumps, pointers, and weights from the data."""

from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from experiments.approximation.tokens import JUMPS, MOST, SMOOTH
from experiments.generalization.networks import TRANSFORMER
from experiments.generalization.ratios import CONFIRMED, FLOOR, REFUTED
from experiments.markdown import interval, table

AHEAD, NOT_AHEAD, OPEN, NONE = "ahead", "not ahead", "open", "no verdict"
FAR, LEARNED = 0.05, 0.8
"""The share of points with an error above one half that a network is to be below, and the error above which one counts
as not having learned pointers."""

Results = dict[str, Any]
Errors = Float[np.ndarray, "seeds"]
Networks = dict[tuple[str, str], dict[str, Any]]
"""The measurements of networks, by kind and number of layers."""


def read_errors(results: Results, name: str, number: str = "error") -> Errors:
    """Return a number of every seed of a network."""
    return np.array([seed[number] for seed in results["networks"][name]["seeds"]])


def ratio(rival: Errors, own: Errors, floor: float = FLOOR) -> IntervalEstimate:
    """Return a rival's error over the own one, by Student's t of the logarithms."""
    logs = students_mean(np.log(np.maximum(rival, floor) / np.maximum(own, floor)))
    return IntervalEstimate(*np.exp([logs.value, logs.low, logs.high]).tolist())


def _said(rival: Errors, own: Errors) -> str:
    if max(rival.max(), own.max()) < FLOOR:
        return NONE
    found = ratio(rival, own)
    return AHEAD if found.low >= CONFIRMED else NOT_AHEAD if found.high <= REFUTED else OPEN


def together(said: list[str], holds: str, fails: str) -> str:
    """Return the verdict on a prediction about several functions, by those that have one."""
    known = {each for each in said if each != NONE}
    return NONE if not known else "confirmed" if known == {holds} else "refuted" if known == {fails} else OPEN


def _smooth(results: Results) -> tuple[list[list[str]], list[str]]:
    width = max(results["settings"]["widths"])
    rivals = [kind for kind in results["settings"]["kinds"] if kind != TRANSFORMER]
    rows, of_sum, of_best = [], [], []
    for name in SMOOTH:
        own = read_errors(results, f"{name}; {TRANSFORMER}; {width}")
        others = {kind: read_errors(results, f"{name}; {kind}; {width}") for kind in rivals}
        best = min(others, key=lambda kind: others[kind].mean())
        of_sum.append(_said(others[rivals[0]], own))
        of_best.append(_said(others[best], own))
        of_all = (ratio(others[rivals[0]], own, floor).written(2) for floor in (FLOOR, 0.0))
        rows.append([name, *of_all, of_sum[-1], best])
        rows[-1] += [ratio(others[best], own).written(2), of_best[-1]]
    return rows, [together(of_sum, AHEAD, NOT_AHEAD), together(of_best, NOT_AHEAD, AHEAD)]


def slope(results: Results, name: str, kind: str) -> IntervalEstimate:
    """Return the exponent at which the share of points with an error above one half falls with the parameters."""
    widths, tested = results["settings"]["widths"], results["settings"]["tested"]
    names = [f"{name}; {kind}; {width}" for width in widths]
    x = np.log([results["networks"][of_size]["parameters"] for of_size in names])
    y = np.log(np.maximum([read_errors(results, of_size, "far") for of_size in names], 1 / tested))
    return students_mean(np.array([np.polyfit(x, of_seed, 1)[0] for of_seed in y.T]))


def _jumps(results: Results) -> tuple[list[list[str]], list[str]]:
    width, kinds = max(results["settings"]["widths"]), results["settings"]["kinds"]
    rows, said = [], {kind: list[str]() for kind in kinds}
    for name in JUMPS:
        for kind in kinds:
            far = students_mean(read_errors(results, f"{name}; {kind}; {width}", "far"))
            falls = slope(results, name, kind)
            near, slower = falls.high < 0 and far.high < FAR, falls.low > 0 or far.low > FAR
            said[kind].append("near" if near else "not near" if slower else OPEN)
            largest = read_errors(results, f"{name}; {kind}; {width}", "largest").min()
            rows.append([name, kind, falls.written(2), far.written(3), f"{largest:.2f}", said[kind][-1]])
    return rows, [together(said[kind], "near", "not near") for kind in (TRANSFORMER, kinds[0])]


def _pointers(networks: Networks) -> tuple[list[list[str]], list[str]]:
    """Return the errors of networks on pointers, by kind and layers, and both verdicts."""
    rows = []
    for (kind, layers), network in networks.items():
        by_steps = [of_steps(network, steps) for steps in range(1, MOST + 1)]
        norms, errors = "yes" if network["sizes"]["norms"] else "no", [interval(errors) for errors in by_steps]
        seeds = ", ".join(f"{error:.2f}" for error in sorted(by_steps[-1]))
        rows.append([kind, layers, f"{network['parameters']:,}", *errors, seeds, norms, f"{network['rate']:g}"])
    asked = {key: of_steps(network, MOST) for key, network in networks.items()}
    own, layer = asked.pop((TRANSFORMER, "4")), asked.pop(("one layer", "1"))
    if min(errors.mean() for errors in (own, layer, *asked.values())) > LEARNED:
        return rows, [NONE, NONE]
    # Two layers of attention are neither one layer nor without attention.
    others = [_said(errors, own) for key, errors in asked.items() if key != (TRANSFORMER, "2")]
    # One network that does as well is enough for the opposite view, and all must be behind for it to be refuted.
    opposite = "confirmed" if NOT_AHEAD in others else "refuted" if set(others) == {AHEAD} else OPEN
    return rows, [together([_said(layer, own)], AHEAD, NOT_AHEAD), opposite]


def pointers(results: Results, *, longer: bool = False) -> Networks:
    """Return the networks on pointers, by kind and number of layers."""
    named = results["longer" if longer else "networks"]
    networks = {}
    for name, of_name in named.items():
        task, kind, layers, *_ = name.split("; ")
        if task == "pointers":
            networks[kind, layers] = of_name
    return networks


def of_steps(network: Results, steps: int) -> Errors:
    """Return the error of every seed on pointers."""
    return np.array([seed["steps"][steps - 1] for seed in network["seeds"]])


WAYS = {"computed": "computed", "read out": "least squares on all at the last token", "trained": "trained",
        "as briefly trained": "trained for as long"}  # fmt: skip


def _from_data(results: Results) -> tuple[list[list[str]], list[list[str]], list[str]]:
    rows, compared, passed, failed = [], [], 0, 0
    for name, kinds in results["from data"].items():
        task = name.partition("; ")[2]
        for kind, found in kinds.items():
            errors = {way: np.array([seed["error"] for seed in found[way]]) for way in WAYS if way in found}
            written = [interval(errors[way]) if way in errors else "" for way in WAYS]
            times = f"{found['seconds']:.1f}", f"{found['seconds of training']:.1f}", str(found["steps"])
            rows.append([task, kind, *written, *times])
            over = ratio(errors["computed"], errors["trained"])
            shorter = ratio(errors["computed"], errors["as briefly trained"])
            if kind == TRANSFORMER:
                passed += over.high <= CONFIRMED and shorter.high < 1
                failed += over.low > CONFIRMED
            compared.append([task, kind, over.written(2), shorter.written(2)])
    count = len(results["from data"])
    papers = "confirmed" if passed > count / 2 else "refuted" if failed >= count / 2 else OPEN
    opposite = "confirmed" if failed == count else "refuted" if failed == 0 else OPEN
    return rows, compared, [papers, opposite]


def _sizes(results: Results) -> list[list[str]]:
    rows = []
    for name, network in results["networks"].items():
        task, kind, width = name.split("; ")
        if task == "pointers":
            continue
        numbers = [interval(read_errors(results, name, number)) for number in ("error", "far")]
        rows.append([task, kind, width, f"{network['parameters']:,}", *numbers, f"{network['rate']:g}"])
    return rows


def tables(results: Results) -> str:
    """Return the tables of the documentation page."""
    smooth, of_smooth = _smooth(results)
    jumps, of_jumps = _jumps(results)
    briefly, of_pointers = _pointers(pointers(results))
    at_length, afterwards = _pointers(pointers(results, longer=True))
    from_data, compared, of_data = _from_data(results)
    asked = {"eight numbers": of_smooth, "jumps": of_jumps, "depth": of_pointers, "from the data": of_data}
    asked["depth, four times as long (afterwards)"] = afterwards
    errors = [f"{steps} {'step' if steps == 1 else 'steps'}" for steps in range(1, MOST + 1)]
    verdicts = [[name, *said] for name, said in asked.items()]
    on_pointers = ["network", "layers", "parameters", *errors, f"{MOST} steps, every seed", "norms", "rate"]
    parts = {
        "Verdicts on approximation": table(["question", "the papers' prediction", "the opposite view"], verdicts),
        "The Transformer on eight numbers": table(
            [
                "function",
                "sum over Transformer",
                "without the floor",
                "verdict",
                "the best rival",
                "best over Transformer",
                "verdict on it",
            ],
            smooth,
        ),
        "Jumps, by size": table(
            ["function", "network", "slope", "share of points above ½", "smallest largest error", "verdict"], jumps
        ),
        "Pointers": table(on_pointers, briefly),
        "Pointers, four times as long (afterwards)": table(on_pointers, at_length),
        "Weights from the data": table(
            ["task", "network", *WAYS.values(), "seconds", "seconds of training", "steps in as long"], from_data
        ),
        "Computed over trained": table(["task", "network", "over trained", "over trained for as long"], compared),
        "Errors by size": table(
            ["function", "network", "width", "parameters", "error", "share above ½", "rate"], _sizes(results)
        ),
    }
    return "\n\n".join("\n".join([f"### {title}", "", *rows]) for title, rows in parts.items())
