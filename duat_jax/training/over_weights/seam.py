"""The seam between two segments of a training: the weights and the number where one ends and the next begins."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from duat_jax.errors import DuatError
from duat_jax.forms.completeness import Completeness
from duat_jax.training.update import SHOWN

Named = Mapping[str, Any]
"""Arrays of weights by their names."""


def require_alike(last: Named, first: Named) -> None:
    """Raise unless two sets of weights have arrays of the same names, shapes and dtypes."""
    if other := sorted(last.keys() ^ first.keys()):
        raise DuatError(f"the weights aren't those that the ledger began with: {', '.join(other[:SHOWN])} differ")
    kinds = {name: [f"{np.shape(side[name])} of {side[name].dtype}" for side in (last, first)] for name in last}
    if wrong := [f"{name} is {ends}, and then {begins}" for name, (ends, begins) in kinds.items() if ends != begins]:
        raise DuatError(f"the weights change their shape or dtype: {'; '.join(wrong[:SHOWN])}")


def require_same_weights(last: Named, first: Named) -> None:
    """Raise unless a ledger begins with the weights with which another one ends."""
    require_alike(last, first)
    for name, ends in last.items():
        ends, begins = np.asarray(ends), np.asarray(first[name])
        moved = (ends != begins) & ~(np.isnan(ends) & np.isnan(begins))
        if moved.any():
            place = tuple(map(int, np.argwhere(moved)[0]))
            raise DuatError(
                f"the segments don't meet: {name}{list(place) if place else ''} is {ends[place]} where the first ledger"
                f" ends and {begins[place]} where the next one begins; give one that begins with the last weights"
            )


def require_same_number(ends: Any, begins: Any, around: Iterable[Completeness]) -> None:
    """Raise unless a number has the same value at a seam, as far as it is rounded in the segments around it."""
    rounding = max((float(each.tolerance) for each in around), default=0.0)
    if not abs(float(ends) - float(begins)) <= rounding:
        raise DuatError(
            f"the number is {ends:.7g} where the ledger ends and {begins:.7g} at the same weights where the next"
            " segment begins: give the function that the ledger was begun with"
        )
