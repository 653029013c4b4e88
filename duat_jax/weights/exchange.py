"""Exchange of parameters between two models: the effects of the largest ones, by runs of the model."""

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.models.transformer import Transformer
from duat_jax.weights.number import TextNumber, value_of
from duat_jax.weights.result import RunAgain
from duat_jax.weights.units import numbered

TOGETHER = "together"
"""The name of all exchanged parameters at once."""


def run_again(
    before: Transformer,
    after: Transformer,
    numbers: Sequence[TextNumber],
    values: Float[np.ndarray, "texts two"],
    parts: Mapping[str, float],
    count: int,
    report: Callable[[], None],
) -> list[RunAgain]:
    """Exchange the parameters with the largest parts, one at a time and together, and run the model again."""
    places, names = numbered(before)
    first, second = values.mean(0).tolist()
    chosen = sorted(parts, key=lambda name: -abs(parts[name]))[:count]

    def mean_with(members: list[str], *, all_others: bool = False) -> float:
        """Return the number of the reference with some parameters of the model, or with all but these."""
        from_model = np.isin(names, members) ^ all_others
        exchanged = jax.tree.map(lambda place, a, b: _either(from_model[place], a, b), places, before, after)
        runs = []
        for number in numbers:
            runs.append(float(value_of(exchanged, number)))
            report()
        return float(np.mean(runs))

    def effect(name: str, members: list[str]) -> RunAgain:
        part = float(sum(parts[member] for member in members))
        return RunAgain(name, part, second - mean_with(members, all_others=True), mean_with(members) - first)

    return [effect(name, [name]) for name in chosen] + ([effect(TOGETHER, chosen)] if chosen else [])


def _either(from_model: np.ndarray, a: Array, b: Array) -> Array:
    """Return a parameter of the reference or of the model, of a loop's parameters step by step."""
    if from_model.all() or not from_model.any():
        return b if from_model.all() else a
    return jnp.where(from_model.reshape(from_model.shape + (1,) * (a.ndim - from_model.ndim)), b, a)
