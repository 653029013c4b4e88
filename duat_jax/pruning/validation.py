"""What may be asked of a pruner: a share, a known name."""

from collections.abc import Iterable


def not_shares(fractions: Iterable[float]) -> list[str]:
    """Return what is wrong with shares that are to go.

    Args:
        fractions: the shares, of `[0, 1)`.
    """
    return [
        f"the fraction that goes is from 0 up to 1, without 1 itself: not {fraction}"
        for fraction in fractions
        if not 0 <= fraction < 1
    ]


def unknown(kind: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return what is wrong with names.

    Args:
        kind: what they are names of.
        names: the names.
        known: those that there are.
    """
    known = tuple(known)
    return [f"there is no {kind} {name!r}: choose one of {', '.join(known)}" for name in names if name not in known]
