"""Agreement of forecasts with retraining: rank correlation, slope, and the additive scores that forecast best."""

from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import agreement
from experiments.study import Row

HALVES, FEW = "a half", "six of 64"
FOLD = 50
"""The number of subsets over which forecasts are ranked together."""
RIDGE = "ridge regression on 150 retrainings"
PENALTIES = 10.0 ** np.arange(-3, 5)


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


def agreements(measured: dict[str, Any], kept: dict[str, Float[np.ndarray, "subsets examples"]]) -> list[Row]:
    """Return the agreement of every method's forecasts with the truth, and the slope, as means over targets."""
    rows = []
    for kind, subsets in kept.items():
        removed, change = 1 - subsets, np.array(measured["without"][kind]) - np.array(measured["again"])
        forecasts = {name: -removed @ np.array(of).T for name, of in measured["scores"].items()}
        if kind == HALVES:
            forecasts[RIDGE] = _of_other_folds(removed, change)
        rows += [{"removed": kind, "method": name, **_compared(of, change)} for name, of in forecasts.items()]
    return rows


def _folds(count: int) -> list[np.ndarray]:
    return list(np.arange(count).reshape(-1, FOLD))


def _of_other_folds(removed: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the forecasts of a ridge regression that is fitted to the other folds."""
    forecast = np.zeros_like(change)
    for fold in _folds(len(change)):
        others = np.setdiff1d(np.arange(len(change)), fold)
        forecast[fold] = removed[fold] @ np.stack([ridge(removed[others], of[others]) for of in change.T], 1)
    return forecast


def _compared(forecast: np.ndarray, change: np.ndarray) -> Row:
    """Return the rank correlation, a mean over folds and targets, and the median over targets of the slope."""
    pairs = list(zip(forecast.T, change.T, strict=True))
    ranks = [agreement(a[fold], b[fold])[0] for a, b in pairs for fold in _folds(len(a))]
    slopes = [np.cov(a, b)[0, 1] / np.var(a, ddof=1) if np.ptp(a) else 0.0 for a, b in pairs]
    return {"agreement": float(np.mean(ranks)), "slope": float(np.median(slopes))}
