"""The statistics of a part of a corpus: every unit's parts of the explained number."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import NotFinite
from duat_jax.inputs.baselines import Reference
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from duat_jax.survey.explained import MARGIN, Explained, contributions, secants
from duat_jax.survey.state import (
    BOUNDS,
    POWERS,
    Extremes,
    Sample,
    State,
    UnitStatistics,
    merge_units,
    priorities,
)

BATCH = 8
"""The number of windows in one program."""

TOP = 8
"""The number of extreme values that are kept of each unit."""

DRAWN = 64
"""The number of tokens that are drawn at random."""


def counted(
    activations: Float[Array, "windows predicted units"], real: Bool[Array, "windows"]
) -> Int[Array, "intervals units"]:
    """Return how many activations lie in each interval."""
    units = activations.shape[-1]
    # The exponent e of the number, 2^(e − 1) ≤ |number| < 2^e; as fast as a sum, unlike a comparison with each bound.
    exponent = jnp.where(activations == 0, -POWERS, jnp.frexp(activations)[1])
    size = jnp.clip(exponent, -POWERS, POWERS) + POWERS
    interval = jnp.where(activations < 0, 2 * POWERS - size, 2 * POWERS + size).reshape(-1, units)
    weight = jnp.repeat(real.astype(jnp.int32), activations.shape[1])[:, None]
    return jnp.zeros((len(BOUNDS), units), jnp.int32).at[interval, jnp.arange(units)].add(weight)


def largest(values: Float[Array, "windows predicted units"]) -> tuple[Array, Array]:
    """Return the largest values of each unit, and their places in the batch; of equal ones the first."""
    blocks = values.reshape(-1, BATCH, values.shape[-1])
    # The largest are in the blocks with the largest maxima, which are found in less time than they in all.
    _, best = _first(blocks.max(1), jnp.arange(len(blocks), dtype=jnp.int32)[:, None])
    places = best[:, None] * BATCH + jnp.arange(BATCH, dtype=jnp.int32)[:, None]
    # An index for every entry: XLA for the TPU 7x lays out slices of eight innermost, and pads them to 128.
    of_entries = jnp.broadcast_to(best[:, None], (len(best), *blocks.shape[1:]))
    candidates = jnp.take_along_axis(blocks, of_entries, 0)
    largest_values, index = _first(*(each.reshape(-1, values.shape[-1]) for each in (candidates, places)))
    return largest_values.T, index.T


def _first(values: Float[Array, "values units"], places: Int[Array, "values _"]) -> tuple[Array, Array]:
    """Return the largest values of each unit and their places; XLA's `top_k` takes twice the time on a CPU."""
    taken, last = [], jnp.iinfo(places.dtype).max
    for _ in range(min(TOP, len(values))):
        value = values.max(0)
        place = jnp.where(values == value, places, last).min(0)
        taken.append((value, place))
        values, places = jnp.where(places == place, -jnp.inf, values), jnp.where(places == place, last, places)
    largest_values, their_places = (jnp.stack(each) for each in zip(*taken, strict=True))
    return largest_values, their_places


@partial(jax.jit, static_argnames="explained")
def _of_batch(
    model: Transformer,
    ids: Int[Array, "windows tokens"],
    baseline: Reference | None,
    real: Bool[Array, "windows"],
    drawn: Int[Array, "drawn 2"],
    explained: Explained,
) -> dict[str, Any]:
    """Return the sums over a batch, its extremes by their index in it, and the activations at drawn places."""
    if baseline is None:
        text_parts = jax.vmap(partial(contributions, model, explained))(ids)
    else:
        text_parts = jax.vmap(partial(secants, model, explained))(ids, baseline)

    def statistics(parts: Array, activations: Array) -> dict[str, Any]:
        weight = jnp.asarray(real, parts.dtype)[:, None, None]
        hidden = jnp.where(real, 0, -jnp.inf)[:, None, None]

        def total(values: Array) -> Array:
            return (weight * values).sum((0, 1))

        return {
            "sums": [total(v) for v in (parts, parts**2, activations, activations**2)],
            "counts": counted(activations, real),
            "extremes": [largest(values + hidden) for values in (parts, -parts, activations)],
            "drawn": activations[drawn[:, 0], drawn[:, 1]],
        }

    units = {name: statistics(*pair) for name, pair in text_parts.units.items()}
    return {"units": units, "sums": text_parts.sums, "error": text_parts.error}


def measure(
    model: Transformer,
    windows: Int[np.ndarray, "windows tokens"],
    first: int,
    explained: Explained = MARGIN,
    baseline: Reference | None = None,
) -> State:
    """Return the statistics of a part of a corpus."""
    # The explained number is summed over the places of a window, so that a unit's part at a token is that of the
    # numbers of this place and of all later ones.
    length = windows.shape[1]
    predicted = length - 1
    places = ((first + np.arange(len(windows)))[:, None] * length + np.arange(predicted)).reshape(-1)
    drawn = places[np.argsort(priorities(places), kind="stable")[:DRAWN]]
    taken = dict[str, np.ndarray]()
    units: dict[str, UnitStatistics] = {}
    sums: dict[str, float] = {}
    worst = 0.0
    begins = range(0, len(windows), BATCH)
    found_in = _batches(model, windows, drawn - first * length, explained, baseline)
    for begin, batch in zip(begins, found_in, strict=True):
        count = min(BATCH, len(windows) - begin)
        errors = batch["error"][:count]
        if not np.isfinite(errors).all():
            number = first + begin + int(np.argmin(np.isfinite(errors)))
            raise NotFinite(f"window {number} of the corpus: what the model says is NaN or infinite")
        worst = max(worst, float(errors.max()))
        for name, values in batch["sums"].items():
            sums[name] = sums.get(name, 0.0) + float(np.sum(values[:count], dtype=np.float64))
        here = (drawn // length - first - begin) // BATCH == 0
        for name, statistics in batch["units"].items():
            new = _units(statistics, (first + begin) * length, length)
            units[name] = new if name not in units else merge_units(units[name], new)
            rows = statistics["drawn"][: len(drawn)].astype(np.float32)
            taken[name] = np.where(here[:, None], rows, taken.get(name, 0))
    sample = Sample(
        _filled(priorities(drawn), np.iinfo(np.uint64).max),
        _filled(drawn, -1),
        {name: _filled(rows, 0) for name, rows in taken.items()},
    )
    return State(len(windows) * predicted, sums, worst, units, sample)


def _batches(
    model: Transformer,
    windows: Int[np.ndarray, "windows tokens"],
    drawn: Int[np.ndarray, "drawn"],
    explained: Explained,
    baseline: Reference | None,
) -> Iterator[dict[str, Any]]:
    """Yield what is found in each batch, with the next one begun: the device works while the host merges."""
    window, token = np.divmod(_filled(drawn, 0), windows.shape[1])

    def begun(begin: int) -> dict[str, Any]:
        def filled(rows: np.ndarray) -> np.ndarray:
            return np.resize(rows[begin : begin + BATCH], (BATCH, *rows.shape[1:]))

        real = np.arange(BATCH) < len(windows) - begin
        here = np.stack([np.clip(window - begin, 0, BATCH - 1), token], -1)
        return _of_batch(model, *jax.tree.map(filled, (windows, baseline)), real, here, explained)

    batches = map(begun, range(0, len(windows), BATCH))
    earlier = next(batches)
    for later in batches:
        yield on_host(earlier)
        earlier = later
    yield on_host(earlier)


def _filled(rows: np.ndarray, filler: Any) -> np.ndarray:
    """Fill the rows of a sample up to their number, where a part has fewer tokens."""
    missing = np.full((DRAWN - len(rows), *rows.shape[1:]), filler, rows.dtype)
    return np.concatenate([rows, missing])


def _units(statistics: dict[str, Any], first: int, length: int) -> UnitStatistics:
    predicted = length - 1

    def extremes(values: np.ndarray, index: np.ndarray) -> Extremes:
        place = first + index // predicted * length + index % predicted
        missing = [(0, 0), (0, TOP - values.shape[-1])]
        return Extremes(
            np.pad(values.astype(np.float32), missing, constant_values=-np.inf),
            np.pad(np.where(np.isfinite(values), place, -1).astype(np.int64), missing, constant_values=-1),
        )

    fields: list[Any] = [np.asarray(each, np.float64) for each in statistics["sums"]]
    fields += [np.asarray(statistics["counts"], np.int64), *(extremes(*pair) for pair in statistics["extremes"])]
    return UnitStatistics(*fields)
