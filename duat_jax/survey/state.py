"""The statistics that a survey keeps of a part of a corpus, and their merging, in any grouping."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt

POWERS = 7
"""Activations are counted between powers of two, from `2⁻⁷` to `2⁷` and below zero alike."""

BOUNDS = np.concatenate([-(2.0 ** np.arange(POWERS - 1, -POWERS - 1, -1)), 2.0 ** np.arange(-POWERS, POWERS), [np.inf]])
"""The upper bound of each interval in which activations are counted; the middle one is around zero."""


class Extremes(NamedTuple):
    """The largest values of every unit, and where they are.

    Args:
        values: `[units, kept]`, from the largest on; `−inf` where there are fewer.
        places: the place of each in the corpus, `window · tokens + token`; −1 where there are fewer.
    """

    values: Float[np.ndarray, "units kept"]
    places: Int[np.ndarray, "units kept"]


class UnitStatistics(NamedTuple):
    """Statistics of the neurons, or of the heads, of one layer.

    Args:
        contribution: the sum of each unit's contributions, `[units]`.
        contribution_squared: of their squares.
        activation: of its activations; of a head, of the norms of what it mixes.
        activation_squared: of their squares.
        counts: the number of activations in each interval, whose upper bounds are `BOUNDS`, `[intervals, units]`.
        highest: the largest contributions.
        lowest: the smallest ones, with their signs changed.
        strongest: the largest activations.
    """

    contribution: Float[np.ndarray, "units"]
    contribution_squared: Float[np.ndarray, "units"]
    activation: Float[np.ndarray, "units"]
    activation_squared: Float[np.ndarray, "units"]
    counts: Int[np.ndarray, "intervals units"]
    highest: Extremes
    lowest: Extremes
    strongest: Extremes


class Sample(NamedTuple):
    """Tokens that are drawn at random, each by a number that depends on its place alone.

    Args:
        priorities: the numbers of the drawn tokens, from the smallest on, `[drawn]`.
        places: their places, `[drawn]`.
        activations: of every layer's units, by its name, `[drawn, units]`.
    """

    priorities: UInt[np.ndarray, "drawn"]
    places: Int[np.ndarray, "drawn"]
    activations: dict[str, Float[np.ndarray, "drawn units"]]


class State(NamedTuple):
    """The statistics of a part of a corpus.

    Args:
        predicted: the number of tokens that were predicted.
        sums: of the explained number, of the embeddings' part and of every bias, by name.
        worst: the largest error of a window's sum, as a part of its tolerance.
        units: the statistics of every layer's neurons and heads, by its name.
        sample: tokens drawn at random.
    """

    predicted: int
    sums: dict[str, float]
    worst: float
    units: dict[str, UnitStatistics]
    sample: Sample


def merge_extremes(first: Extremes, other: Extremes) -> Extremes:
    """Return the largest values of two sets; of equal ones the first in the corpus.

    Example:
        >>> one, other = (Extremes(np.array([[v]]), np.array([[p]])) for v, p in ((1.0, 7), (2.0, 3)))
        >>> merge_extremes(one, other).places.tolist()
        [[3]]
    """
    values, places = (np.concatenate(pair, -1) for pair in zip(first, other, strict=True))
    order = np.lexsort((places, -values), axis=-1)[..., : first.values.shape[-1]]
    return Extremes(np.take_along_axis(values, order, -1), np.take_along_axis(places, order, -1))


def merge_units(first: UnitStatistics, other: UnitStatistics) -> UnitStatistics:
    """Return the statistics of one layer's units over two parts of a corpus."""
    pairs: list[tuple[Any, Any]] = list(zip(first, other, strict=True))
    merged: list[Any] = [merge_extremes(*pair) if isinstance(pair[0], Extremes) else sum(pair) for pair in pairs]
    return UnitStatistics(*merged)


def merge(first: State, other: State) -> State:
    """Return the statistics of two parts of a corpus together."""
    # Counts, extremes and the sample don't depend on the grouping of several parts; sums of numbers do, by rounding.
    kept = len(first.sample.priorities)
    order = np.argsort(np.concatenate([first.sample.priorities, other.sample.priorities]), kind="stable")[:kept]

    def drawn(*pair: np.ndarray) -> np.ndarray:
        return np.concatenate(pair)[order]

    return State(
        first.predicted + other.predicted,
        {name: first.sums[name] + other.sums[name] for name in first.sums},
        max(first.worst, other.worst),
        {name: merge_units(units, other.units[name]) for name, units in first.units.items()},
        Sample(
            drawn(first.sample.priorities, other.sample.priorities),
            drawn(first.sample.places, other.sample.places),
            {name: drawn(values, other.sample.activations[name]) for name, values in first.sample.activations.items()},
        ),
    )


def merge_all(states: Iterable[State]) -> State:
    """Merge states in a fixed tree: neighbours first, then pairs of neighbours, so that sums are rounded alike."""
    waiting: list[tuple[int, State]] = []
    for state in states:
        size = 1
        while waiting and waiting[-1][0] == size:
            size, state = 2 * size, merge(waiting.pop()[1], state)
        waiting.append((size, state))
    _, whole = waiting.pop()
    while waiting:
        whole = merge(waiting.pop()[1], whole)
    return whole


def priorities(places: Int[np.ndarray, "places"]) -> UInt[np.ndarray, "places"]:
    """Return a number for each place, as if drawn at random: a bijection, so that no two are equal."""
    z = (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def flat(state: State) -> dict[str, np.ndarray]:
    """Return the arrays of a state by name, for a file."""
    arrays = {"predicted": np.array(state.predicted), "worst": np.array(state.worst)}
    arrays |= {f"sums/{name}": np.array(value) for name, value in state.sums.items()}
    arrays |= {"sample/priorities": state.sample.priorities, "sample/places": state.sample.places}
    arrays |= {f"sample/activations/{name}": values for name, values in state.sample.activations.items()}
    for name, units in state.units.items():
        for field, value in units._asdict().items():
            parts = value._asdict() if isinstance(value, Extremes) else {"": value}
            arrays |= {f"units/{name}/{field}/{part}": array for part, array in parts.items()}
    return arrays


def nested(arrays: dict[str, np.ndarray]) -> State:
    """Return the state whose arrays were kept by `flat`."""

    def under(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}

    names = sorted({name.rsplit("/", 2)[0] for name in under("units/")})

    def units(name: str) -> UnitStatistics:
        def read_field(field: str) -> Any:
            parts = under(f"units/{name}/{field}/")
            return Extremes(**parts) if "places" in parts else parts[""]

        return UnitStatistics(*map(read_field, UnitStatistics._fields))

    return State(
        int(arrays["predicted"]),
        {name: float(value) for name, value in under("sums/").items()},
        float(arrays["worst"]),
        {name: units(name) for name in names},
        Sample(arrays["sample/priorities"], arrays["sample/places"], under("sample/activations/")),
    )
