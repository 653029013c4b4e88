"""Agreement of forecasts with retraining, and the tables of the page."""

from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import IntervalEstimate, agreement, students_mean
from experiments.markdown import Fields, cells, table
from experiments.retraining.methods import DERIVATIVE, EXACT, ON_THE_SCALE, OTHERS, ROOT, SEGMENTS, START, TRAPEZOID
from experiments.retraining.networks import STEPS

HALVES, FEW = "a half", "six of 64"
FOLD = 50
"""The number of subsets over which forecasts are ranked together."""
RIDGE = "ridge regression on 150 retrainings"
PENALTIES = 10.0 ** np.arange(-3, 5)
QUIET = 0.1
"""The largest floor of a training that counts as quiet, as a multiple of the change without a few examples."""
LEVEL, ADDITIVE = 0.05, 0.3
"""The largest difference that counts as level, and from which agreement of the ridge regression on a training counts
as one whose retraining can be forecast by scores that add up."""

Found = dict[str, Any]


def ridge(removed: Float[np.ndarray, "subsets examples"], change: Float[np.ndarray, "subsets"]) -> np.ndarray:
    """Return the additive scores that forecast changes best, with the penalty chosen by leaving one subset out."""
    x, y = removed - removed.mean(0), change - change.mean()
    left, sizes, right = np.linalg.svd(x, full_matrices=False)

    def fitted(penalty: float) -> tuple[float, np.ndarray]:
        shrunk = sizes**2 / (sizes**2 + penalty)
        residuals = y - left @ (shrunk * (left.T @ y))
        leverage = (left**2) @ shrunk + 1 / len(y)
        error = float(np.mean((residuals / (1 - leverage)) ** 2))
        return error, right.T @ (sizes / (sizes**2 + penalty) * (left.T @ y))

    return min((fitted(penalty) for penalty in PENALTIES), key=lambda each: each[0])[1]


def agreements(piece: Found, kept: dict[str, Float[np.ndarray, "subsets examples"]]) -> Found:
    """Return the agreement of every method's forecasts with the truth, and the slope, as means over targets."""
    found: Found = {}
    for kind, subsets in kept.items():
        removed, change = 1 - subsets, np.array(piece["without"][kind]) - np.array(piece["again"])
        forecasts = {name: -removed @ np.array(of).T for name, of in piece["scores"].items()}
        if kind == HALVES:
            forecasts[RIDGE] = _of_other_folds(removed, change)
        found[kind] = {name: _compared(forecast, change) for name, forecast in forecasts.items()}
    return found


def _folds(count: int) -> list[np.ndarray]:
    return list(np.arange(count).reshape(-1, FOLD))


def _of_other_folds(removed: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the forecasts of a ridge regression that is fitted to the other folds."""
    forecast = np.zeros_like(change)
    for fold in _folds(len(change)):
        others = np.setdiff1d(np.arange(len(change)), fold)
        forecast[fold] = removed[fold] @ np.stack([ridge(removed[others], of[others]) for of in change.T], 1)
    return forecast


def _compared(forecast: np.ndarray, change: np.ndarray) -> Found:
    """Return the rank correlation, a mean over folds and targets, and the median over targets of the slope."""
    pairs = list(zip(forecast.T, change.T, strict=True))
    ranks = [agreement(a[fold], b[fold])[0] for a, b in pairs for fold in _folds(len(a))]
    slopes = [np.cov(a, b)[0, 1] / np.var(a, ddof=1) if np.ptp(a) else 0.0 for a, b in pairs]
    return {"agreement": float(np.mean(ranks)), "slope": float(np.median(slopes))}


def _leads(pieces: list[Found], kind: str, first: str, other: str) -> IntervalEstimate:
    """Return by how much a method is ahead of another one: over seeds the mean of all groups and rates."""
    seeds: dict[int, list[float]] = {}
    for piece in pieces:
        of = piece["agreements"][kind]
        seeds.setdefault(piece["seed"], []).append(of[first]["agreement"] - of[other]["agreement"])
    return students_mean(np.array([np.mean(of_seed) for of_seed in seeds.values()]))


def _verdict(lead: IntervalEstimate) -> str:
    if lead.low > 0:
        return "ahead" if lead.value >= LEVEL else "ahead by less than stated"
    if lead.high < 0:
        return "behind"
    return "level" if max(-lead.low, lead.high) <= LEVEL else "undecided"


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages."""
    pieces = list(results["pieces"].values())
    groups = {name: [piece for piece in pieces if piece["group"] == name] for name in results["groups"]}
    texts: list[str] = []
    for kind in (HALVES, FEW):

        def mean(of: list[Found], method: str, kind: str = kind) -> float:
            return float(np.mean([piece["agreements"][kind][method]["agreement"] for piece in of]))

        def slope(method: str, kind: str = kind) -> str:
            slopes = [piece["agreements"][kind][method]["slope"] for piece in pieces]
            return f"{np.median(slopes):.2f}" if method in (*ON_THE_SCALE, RIDGE) else ""

        own = pieces[0]["agreements"][kind]
        methods = [name for _, name in sorted((-mean(pieces, name), name) for name in own)]
        rows = [
            [method, *(f"{mean(of, method):.3f}" for of in (pieces, *groups.values())), slope(method)]
            for method in methods
        ]
        texts += [f"#### Without {kind}", "", *table(["rank correlation", "all", *groups, "slope"], rows), ""]
    texts += ["#### What decides", "", *_contrasts(pieces), ""]
    texts += ["#### The trainings", "", *_trainings(groups)]
    text = "\n".join(texts)
    return {"tables": text, **cells(text)}


def _contrasts(pieces: list[Found]) -> list[str]:
    """Return the table of the leads that decide, each with its verdict on both kinds of removal."""
    largest = [piece for piece in pieces if piece["largest rate"]]
    additive = [piece for piece in pieces if piece["agreements"][HALVES][RIDGE]["agreement"] >= ADDITIVE]
    plain = [piece for piece in pieces if piece["group"].endswith("gradient descent")]
    adam = [piece for piece in pieces if piece["group"].endswith("Adam")]
    exact, start, trapezoid = (f"{name}, {SEGMENTS[ROOT]}" for name in (EXACT, START, TRAPEZOID))
    step_by_step = f"{EXACT}, {SEGMENTS[1]}", f"{START}, {SEGMENTS[1]}"
    lowest = [piece for piece in plain if piece["rate"] == min(_rates(pieces, piece["group"]))]
    quiet = [piece for piece in pieces if piece["floor"] < QUIET * piece["moved"]]
    asked = [
        (f"{exact}, before {START}", pieces, exact, start),
        ("the same, with the largest rates", largest, exact, start),
        ("the same, where the regression reaches 0.3 on halves", additive, exact, start),
        (f"{exact}, before {TRAPEZOID}", pieces, exact, trapezoid),
        (f"{EXACT}, {SEGMENTS[1]}, before {START}", pieces, *step_by_step),
        (f"{exact}, before that of the other targets", pieces, exact, OTHERS),
        (f"{DERIVATIVE}, before {EXACT}, with gradient descent", plain, DERIVATIVE, exact),
        (f"{DERIVATIVE}, before {EXACT}, with Adam", adam, DERIVATIVE, exact),
    ]
    afterwards = [
        (f"{EXACT}, {SEGMENTS[1]}, before {START}, with the largest rates", largest, *step_by_step),
        (f"{exact}, before {START}, where the floor is below a tenth of the change without six", quiet, exact, start),
        (f"{DERIVATIVE}, before {EXACT}, with gradient descent at the lowest rates", lowest, DERIVATIVE, exact),
        (
            f"{DERIVATIVE}, before {EXACT}, with gradient descent at the largest rates",
            [piece for piece in plain if piece in largest],
            DERIVATIVE,
            exact,
        ),
        ("influence function, before through training, with gradient descent", plain, "influence function", DERIVATIVE),
        (f"{exact}, before influence function, with Adam", adam, exact, "influence function"),
        (f"{exact}, before gradient after all, with Adam", adam, exact, "gradient after all"),
        (
            f"{EXACT}, {SEGMENTS[STEPS]}, before {TRAPEZOID}",
            pieces,
            f"{EXACT}, {SEGMENTS[STEPS]}",
            f"{TRAPEZOID}, {SEGMENTS[STEPS]}",
        ),
    ]
    asked += [(f"afterwards: {name}", of, first, other) for name, of, first, other in afterwards]
    rows = []
    for name, of, first, other in asked:
        leads = [_leads(of, kind, first, other) for kind in (HALVES, FEW)]
        rows.append([name, *(cell for lead in leads for cell in (lead.written(sign="+"), _verdict(lead)))])
    return table(["lead", f"without {HALVES}", "verdict", f"without {FEW}", "verdict there"], rows)


def _rates(pieces: list[Found], group: str) -> list[float]:
    return [piece["rate"] for piece in pieces if piece["group"] == group]


def _trainings(groups: dict[str, list[Found]]) -> list[str]:
    """Return the table of the losses of trainings and targets, the regression's agreement, and the floor."""
    rows = []
    for name, of in groups.items():
        for rate in dict.fromkeys(piece["rate"] for piece in of):
            own = [piece for piece in of if piece["rate"] == rate]
            losses, targets = (np.mean([piece[key] for piece in own], 0) for key in ("losses", "targets"))
            reached = np.mean([piece["agreements"][HALVES][RIDGE]["agreement"] for piece in own])
            floor, moved = max(piece["floor"] for piece in own), np.mean([piece["moved"] for piece in own])
            numbers = [f"{number:.2f}" for number in (*losses, *targets)]
            found = [
                f"{np.mean([piece['agreements'][FEW][method][measure] for piece in own]):.{digits}f}"
                for method in (DERIVATIVE, f"{EXACT}, {SEGMENTS[ROOT]}")
                for measure, digits in (("agreement", 3), ("slope", 2))
            ]
            rows.append([f"{name}, {rate:g}", *numbers, f"{reached:.3f}", *found, f"{moved:.3f}", f"{floor:.1e}"])
    head = ["training", "loss at first", "largest", "at last", "targets before", "targets after", "regression"]
    scores = ["derivative, without six", "slope of the derivative", "exact ledger, without six", "slope of the ledger"]
    return table([*head, *scores, "change without six", "floor"], rows)
