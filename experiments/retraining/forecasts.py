"""Agreement of forecasts with retraining: rank correlation, slope, and the additive scores that forecast best."""

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import RidgeCV

from duat_jax.evaluation.statistics import agreement
from experiments.study import Row

HALVES, FEW = "a half", "six of 64"
FOLD = 50
"""The number of subsets over which forecasts are ranked together."""
RIDGE = "ridge regression on 150 retrainings"
PENALTIES = 10.0 ** np.arange(-3, 5)


def agreements(
    changes: dict[str, Float[np.ndarray, "subsets targets"]],
    scores: dict[str, Float[np.ndarray, "targets examples"]],
    kept: dict[str, Float[np.ndarray, "subsets examples"]],
) -> list[Row]:
    """Return the agreement of every method's forecasts with the true changes, and the slope, as means over targets."""
    rows = []
    for kind, change in changes.items():
        removed = 1 - kept[kind]
        forecasts = {name: -removed @ of.T for name, of in scores.items()}
        if kind == HALVES:
            forecasts[RIDGE] = _of_other_folds(removed, change)
        rows += [{"removed": kind, "method": name, **_compared(of, change)} for name, of in forecasts.items()]
    return rows


def _folds(count: int) -> list[np.ndarray]:
    return list(np.arange(count).reshape(-1, FOLD))


def _of_other_folds(removed: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Return the forecasts of a ridge regression on the other folds, its penalty chosen by leaving one subset out."""
    forecast = np.zeros_like(change)
    for fold in _folds(len(change)):
        others = np.setdiff1d(np.arange(len(change)), fold)
        fitted = RidgeCV(PENALTIES, alpha_per_target=True).fit(removed[others], change[others])
        forecast[fold] = removed[fold] @ fitted.coef_.T
    return forecast


def _compared(forecast: np.ndarray, change: np.ndarray) -> Row:
    """Return the rank correlation, a mean over folds and targets, and the median over targets of the slope."""
    pairs = list(zip(forecast.T, change.T, strict=True))
    ranks = [agreement(a[fold], b[fold])[0] for a, b in pairs for fold in _folds(len(a))]
    slopes = [np.cov(a, b)[0, 1] / np.var(a, ddof=1) if np.ptp(a) else 0.0 for a, b in pairs]
    return {"agreement": float(np.mean(ranks)), "slope": float(np.median(slopes))}
