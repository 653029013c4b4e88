"""Order the factors of a word and name its indices of summation in a way that doesn't depend on how it is written."""

from collections import defaultdict
from typing import Any

Factor = list[tuple[int, tuple[Any, ...]]]  # its number and its indices, in every way to read it


def canonical(factors: list[Factor], known: dict[Any, int]) -> tuple[Any, ...]:
    """Return factors in an order, and with names for their unknown indices, that don't depend on either."""
    groups: list[tuple[set[Any], list[Factor]]] = []  # each of factors that share unknown indices
    for factor in factors:
        unknown = {i for i in factor[0][1] if i not in known}
        apart = [group for group in groups if not group[0] & unknown]
        met = [group for group in groups if group[0] & unknown]
        groups = [*apart, (unknown.union(*(g[0] for g in met)), [factor, *(f for g in met for f in g[1])])]
    return tuple(sorted(_connected(group, known) for _, group in groups))


def _connected(factors: list[Factor], known: dict[Any, int]) -> tuple[Any, ...]:
    """Return the same of factors that share unknown indices: one next to a known index first, then the others."""

    def reading(number: int, indices: tuple[Any, ...]) -> tuple[Any, ...]:
        new: dict[Any, int] = {}
        names = tuple(known[i] if i in known else new.setdefault(i, len(known) + len(new)) for i in indices)
        return (-max((known[i] for i in indices if i in known), default=-1), number, names), new

    readings = [(*reading(*view), k) for k, factor in enumerate(factors) for view in factor]
    first = min(code for code, _, _ in readings)
    choices = [(new, k) for code, new, k in readings if code == first]
    if len(choices) > 1:
        return min(((first,), canonical(factors[:k] + factors[k + 1 :], known | new)) for new, k in choices)
    # A chain is followed without looking at the factors elsewhere: there is no other choice.
    where = defaultdict(set)
    for k, factor in enumerate(factors):
        for i in factor[0][1]:
            where[i].add(k)
    ((new, k),), chain, left, known = choices, [first], set(range(len(factors))), dict(known)
    while True:
        left.discard(k)
        known |= new
        following = [f for i in new for f in where[i] if f in left]
        if len(new) != 1 or len(following) != 1 or len(factors[following[0]]) > 1:
            return tuple(chain), canonical([factors[f] for f in sorted(left)], known)
        k = following[0]
        code, new = reading(*factors[k][0])
        chain.append(code)
