"""The statistics of a part of a corpus: every unit's contributions to the margins of the tokens that stand there."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import NotFinite
from duat_jax.forms import decomposition
from duat_jax.forms.coefficients import coefficients
from duat_jax.models.sites import HEADS
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from duat_jax.survey.state import (
    BOUNDS,
    POWERS,
    Extremes,
    Sample,
    State,
    Units,
    merge_units,
    priorities,
)
from duat_jax.transform import marks
from duat_jax.transform.marks import hold
from duat_jax.transform.recording import record_kinds

BATCH = 8
"""The number of windows in one program."""

TOP = 8
"""The number of extreme values that are kept of each unit."""

DRAWN = 64
"""The number of tokens that are drawn at random."""


def margins(model: Transformer, x: Float[Array, "tokens features"], ids: Int[Array, "tokens"]) -> Float[Array, ""]:
    """Return the sum over a text of its margins: the logit of each next token, minus that of the most probable other.

    Which other token that is, is held.

    Args:
        model: a language model.
        x: the text's embeddings.
        ids: its token ids.
    """
    logits = model.output(x)[:-1]
    without = logits.at[jnp.arange(len(ids) - 1), ids[1:]].set(-jnp.inf)
    other = hold(without.argmax(-1), "runner-up")
    expected, others = (jnp.take_along_axis(logits, tokens[:, None], -1) for tokens in (ids[1:], other))
    return (expected - others).sum()  # in this order: the sums of logits are rounded much more than their difference


def _of_text(model: Transformer, ids: Int[Array, "tokens"]) -> dict[str, Any]:
    """Return of one text the parts, and every unit's contributions and activations, `[predicted, units]`."""
    kinds = (*decomposition.KINDS, marks.POINT)
    recording = record_kinds(lambda x: margins(model, x, ids), model.embed(ids), kinds)
    table = decomposition.contributions(recording)
    sites = [site for site in recording.program.of_kind(marks.POINT) if site.key.name == HEADS]
    of_heads, values = coefficients(recording, sites), recording.seen
    activations = recording.dynamics.activations
    units = {
        f"{key}/neurons": (table.coefficients[key] * activations[key], activations[key]) for key in table.coefficients
    } | {
        f"{site.key}/heads": ((of_heads[site] * values[site]).sum(-1), jnp.linalg.norm(values[site], axis=-1))
        for site in sites
    }
    parts = {"margin": recording.value, "embedding": table.input.sum()}
    return {
        "units": jax.tree.map(lambda part: part[:-1], units),
        "parts": parts | {f"{key}": part.sum() for key, part in table.offsets.items()},
        "error": jnp.abs(table.completeness.error) / table.completeness.tolerance,
    }


def counted(
    activations: Float[Array, "windows predicted units"], real: Bool[Array, "windows"]
) -> Int[Array, "intervals units"]:
    """Return how many activations lie in each interval.

    Args:
        activations: of the units.
        real: whether a window counts.
    """
    units = activations.shape[-1]
    # The exponent e of the number, 2^(e − 1) ≤ |number| < 2^e; as fast as a sum, unlike a comparison with each bound.
    exponent = jnp.where(activations == 0, -POWERS, jnp.frexp(activations)[1])
    size = jnp.clip(exponent, -POWERS, POWERS) + POWERS
    interval = jnp.where(activations < 0, 2 * POWERS - size, 2 * POWERS + size).reshape(-1, units)
    weight = jnp.repeat(real.astype(jnp.int32), activations.shape[1])[:, None]
    return jnp.zeros((len(BOUNDS), units), jnp.int32).at[interval, jnp.arange(units)].add(weight)


def _extremes(values: Float[Array, "units predicted"]) -> tuple[Array, Array]:
    return jax.lax.top_k(values, min(TOP, values.shape[-1]))


@jax.jit
def _of_batch(model: Transformer, ids: Int[Array, "windows tokens"], real: Array) -> dict[str, Any]:
    """Return the sums over a batch, its extremes by their index in it, and every activation."""
    found = jax.vmap(partial(_of_text, model))(ids)

    def statistics(contributions: Array, activations: Array) -> dict[str, Any]:
        weight = jnp.asarray(real, contributions.dtype)[:, None, None]
        hidden = jnp.where(real, 0, -jnp.inf)[:, None, None]

        def by_unit(values: Array) -> Array:
            return jnp.moveaxis(values, -1, 0).reshape(values.shape[-1], -1)

        def total(values: Array) -> Array:
            return (weight * values).sum((0, 1))

        return {
            "sums": [total(v) for v in (contributions, contributions**2, activations, activations**2)],
            "counts": counted(activations, real),
            "extremes": [
                _extremes(by_unit(values + hidden)) for values in (contributions, -contributions, activations)
            ],
        }

    return {
        "units": {name: statistics(*pair) for name, pair in found["units"].items()},
        "activations": {name: activations for name, (_, activations) in found["units"].items()},
        "parts": found["parts"],
        "error": found["error"],
    }


def measure(model: Transformer, windows: Int[np.ndarray, "windows tokens"], first: int) -> State:
    """Return the statistics of a part of a corpus.

    The explained number is the sum over places of the margin: the logit of the token that stands there next, minus
    that of the most probable other token, which is held. A unit's contribution at a token is to all later margins of
    its window.

    Args:
        model: a language model.
        windows: token ids, `[windows, tokens]`.
        first: the number of the first window in the corpus.

    Raises:
        NotFinite: naming the first window at which the model's number is NaN or infinite.
    """
    length = windows.shape[1]
    predicted = length - 1
    places = ((first + np.arange(len(windows)))[:, None] * length + np.arange(predicted)).reshape(-1)
    order = np.argsort(priorities(places), kind="stable")[:DRAWN]
    drawn, taken = places[order], dict[str, list[np.ndarray]]()
    units: dict[str, Units] = {}
    sums: dict[str, float] = {}
    worst = 0.0
    for begin in range(0, len(windows), BATCH):
        count = min(BATCH, len(windows) - begin)
        rows = np.resize(windows[begin : begin + BATCH], (BATCH, length))
        found = on_host(_of_batch(model, rows, np.arange(BATCH) < count))
        errors = found["error"][:count]
        if not np.isfinite(errors).all():
            number = first + begin + int(np.argmin(np.isfinite(errors)))
            raise NotFinite(f"window {number} of the corpus: what the model says is NaN or infinite")
        worst = max(worst, float(errors.max()))
        for name, values in found["parts"].items():
            sums[name] = sums.get(name, 0.0) + float(np.sum(values[:count], dtype=np.float64))
        for name, statistics in found["units"].items():
            new = _units(statistics, (first + begin) * length, length)
            units[name] = new if name not in units else merge_units(units[name], new)
        window, token = np.divmod(drawn - (first + begin) * length, length)
        here = (window >= 0) & (window < count)
        for name, activations in found["activations"].items():
            rows_of = taken.setdefault(name, [np.zeros(activations.shape[-1], np.float32)] * len(drawn))
            for k in np.flatnonzero(here):
                rows_of[k] = np.asarray(activations[window[k], token[k]], np.float32)
    sample = Sample(
        _filled(priorities(drawn), np.iinfo(np.uint64).max),
        _filled(drawn, -1),
        {name: _filled(np.stack(rows_of), 0) for name, rows_of in taken.items()},
    )
    return State(len(windows) * predicted, sums, worst, units, sample)


def _filled(rows: np.ndarray, filler: Any) -> np.ndarray:
    """Fill the rows of a sample up to their number, where a part has fewer tokens."""
    missing = np.full((DRAWN - len(rows), *rows.shape[1:]), filler, rows.dtype)
    return np.concatenate([rows, missing])


def _units(statistics: dict[str, Any], first: int, length: int) -> Units:
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
    return Units(*fields)
