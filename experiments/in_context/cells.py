"""Formatting of the tables of docs/findings/in-context.md: means with confidence intervals."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm, t

from duat_jax.evaluation.statistics import bootstrap
from experiments import markdown

TASKS = ("antonyms", "capitals", "uppercase")
MODELS = ("The embedded model", "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2")
COUNTS = (1, 2, 4, 8)

Pieces = dict[str, Any]
Row = list[str]


def mean(values: Sequence[float], digits: int = 2, sign: str = "+") -> str:
    """Format a mean with its interval; the mean alone for a single value."""
    if len(values) < 2:
        return f"{values[0]:{sign}.{digits}f}"
    return bootstrap(np.asarray(values, np.float64)).written(digits, sign)


def plain(values: Sequence[float]) -> str:
    """Format a mean with its interval with one digit and without a sign."""
    return mean(values, 1, "")


def share(values: Sequence[float]) -> str:
    """Format the mean of a fraction with its interval, in per cent."""
    return f"{plain([100 * value for value in values])} %"


def ratio(parts: Sequence[float], wholes: Sequence[float]) -> str:
    """Format the ratio of two means in per cent, with an interval if there are several units."""
    columns = np.stack([parts, wholes], -1).astype(np.float64)
    if len(columns) < 2:
        return f"{100 * columns[0, 0] / columns[0, 1]:.1f} %"
    return f"{bootstrap(columns, lambda means: 100 * means[..., 0] / means[..., 1]).written(1)} %"


def table(head: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """Return a table in Markdown, or nothing if it has no rows."""
    body = list(rows)
    return [*markdown.table(head, body), ""] if body else []


def draws(pieces: Pieces, name: str) -> list[Any]:
    """Return the results of every draw, whose number replaces `{}` in the name of the piece."""
    return [pieces[key] for draw in range(100) if (key := name.format(draw)) in pieces]


def coverage(units: int) -> float:
    """Return the coverage of a mean's nominal 95 % percentile interval for normally distributed units."""
    # The interval is about `mean ± 1.96 s √((n − 1) / n) / √n`, where Student's would take the quantile of `t` instead.
    return float(2 * t.cdf(norm.ppf(0.975) * np.sqrt((units - 1) / units), units - 1) - 1)


def intervals(text: str) -> int:
    """Return the number of intervals in the tables of a text."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return sum(len(re.findall(r"\[[-+.\d]+, [-+.\d]+\]", row)) for row in rows)
