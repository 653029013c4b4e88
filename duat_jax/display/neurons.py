"""The neurons with the largest parts."""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from duat_jax.transform.keys import Key

Name = TypeVar("Name")


class Neuron(NamedTuple):
    """The part of one neuron at one token.

    Args:
        term: the mark of the values that it is one of, which the MLP's output matrix reads: the result's values are in
            `recording.dynamics.points`, and its layer is `term.layer`.
        token_index: index of the token.
        neuron: index of the neuron.
        contribution: its part of the difference.
    """

    term: Key
    token_index: int
    neuron: int
    contribution: float

    @property
    def layer(self) -> int | None:
        """The layer; `None` outside of all layers."""
        return self.term.layer


def largest_entries(
    parts: Mapping[Name, Float[np.ndarray, "tokens units"]], count: int
) -> list[tuple[Name, int, int, float]]:
    """Return the largest entries by size, each with its part, token and unit."""
    entries: list[tuple[Name, int, int, float]] = []
    for key, part in parts.items():
        sizes = -np.abs(part.reshape(-1))
        chosen = np.argpartition(sizes, min(count, len(sizes)) - 1)[:count]
        places = (divmod(int(i), part.shape[-1]) for i in chosen)
        entries += [(key, token, unit, float(part[token, unit])) for token, unit in places]
    return sorted(entries, key=lambda entry: -abs(entry[-1]))[:count]
