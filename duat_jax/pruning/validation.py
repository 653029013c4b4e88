"""Validation of pruning arguments."""

from collections.abc import Iterable


def fraction_problems(fractions: Iterable[float]) -> list[str]:
    """Return an error message for every fraction outside of `[0, 1)`."""
    return [
        f"the fraction to remove must be at least 0 and less than 1, not {fraction}"
        for fraction in fractions
        if not 0 <= fraction < 1
    ]


def name_problems(kind: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return an error message for every unknown name."""
    known = tuple(known)
    return [f"there is no {kind} {name!r}: choose one of {', '.join(known)}" for name in names if name not in known]
