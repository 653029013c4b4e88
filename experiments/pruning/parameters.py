"""Can the smallest fifth of the layers' entries be removed at little loss?

Wang & Li: "The rationale lies in the presence of excessively low-weight parameters in certain layers of LLMs" (Section
4.3).  Entries of all matrices of the layers are set to zero: the smallest of all, the smallest of each matrix, or as
many at random (three draws).  Nothing is fitted anew.  The loss is taken on 96 held-out windows of 128 tokens for the
embedded model, and on 24 windows of every other chapter of Python's manual for SmolLM2-135M.

The opposite view is that small entries can go anywhere because they are small, in every layer alike: then the first
prediction is confirmed and the second refuted.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int

from duat_jax.models.transformer import Transformer
from duat_jax.weights.rounded import sizes_of_matrices
from duat_jax.weights.units import name_of, parameters_of
from experiments.pruning.draws import EMBEDDED, SMOLLM2, draws_of, window_losses
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.verdict import decide

WINDOWS = {EMBEDDED: 96, SMOLLM2: 24}
"""Windows of held-out text."""
DRAWS, SHARES = 3, (0.05, 0.1, 0.2, 0.3, 0.5)
"""Random choices, and the shares of parameters that are removed."""
SMALLEST, WITHIN, AT_RANDOM = "smallest of all", "smallest of each matrix", "at random"
LITTLE, MUCH = 0.05, 0.2
"""Added losses in nats a token: below the one small parameters can go, above the other they can't."""
TWICE, EVEN = 2.0, 1.5
"""The largest share of a layer in the smallest tenth, as a multiple of an even one: above the one they are in certain
layers, below the other they aren't."""


def without(model: Transformer, share: float, how: str, seed: int = 0) -> Transformer:
    """Return a model in which a share of the entries of its layers' matrices is zero."""
    names, draw = list(sizes_of_matrices(model)), np.random.default_rng(seed)
    matrices = {name: np.abs(np.asarray(parameters_of(model)[name])) for name in names}
    overall = np.quantile(np.concatenate([of.ravel() for of in matrices.values()]), share) if how == SMALLEST else 0.0
    kept = {
        name: jnp.asarray(
            draw.random(of.shape) >= share
            if how == AT_RANDOM
            else of > (np.quantile(of, share) if how == WITHIN else overall)
        )
        for name, of in matrices.items()
    }

    def of_leaf(path: Any, leaf: Array) -> Array:
        mask = kept.get(name_of(path))
        return leaf if mask is None else jnp.where(mask, leaf, 0)

    found: Transformer = jax.tree_util.tree_map_with_path(of_leaf, model)
    return found


def shares_of_layers(model: Transformer) -> dict[str, list[float]]:
    """Return of every layer its share of the smallest tenth of all parameters, as a multiple of an even share."""
    names = list(sizes_of_matrices(model))
    matrices = {name: np.abs(np.asarray(parameters_of(model)[name])) for name in names}
    tenth = np.quantile(np.concatenate([of.ravel() for of in matrices.values()]), 0.1)
    entries = pd.DataFrame(
        {"layer": int(name.split(".")[1]), "below": (of <= tenth).sum(), "size": of.size}
        for name, of in matrices.items()
    )
    whole = entries.below.sum() / entries["size"].sum()
    layers, of_matrices = entries.groupby("layer").sum(), entries.below / entries["size"] / whole
    return {
        "layers": (layers.below / layers["size"] / whole).tolist(),
        "matrices": [of_matrices.min(), of_matrices.max()],
    }


def added(
    model: Transformer, ids: Int[np.ndarray, "windows tokens"], whole: np.ndarray, share: float, how: str, seed: int
) -> Row:
    """Return by how much the loss of every window grows without a share of the parameters."""
    return {"added": np.subtract(window_losses(without(model, share, how, seed), ids), whole)}


def measure() -> Measurements:
    """Yield the places of small parameters, and every removal."""
    for name, count in WINDOWS.items():
        of = draws_of(name, 1, count)
        yield Piece("places", {"model": name}, partial(shares_of_layers, of.model))
        whole = window_losses(of.model, of.held_out)
        for how in (SMALLEST, WITHIN, AT_RANDOM):
            for share in SHARES:
                for draw in range(DRAWS if how == AT_RANDOM else 1):
                    keys: dict[str, str | int] = {"model": name, "choice": how, "removed": f"{share:.0%}", "draw": draw}
                    yield Piece("removals", keys, partial(added, of.model, of.held_out, whole, share, how, draw))


def of_windows(removals: pd.DataFrame) -> Float[np.ndarray, "windows"]:
    """Return the added loss of every window, of random choices their mean."""
    return np.mean(np.stack(removals.added.to_list()), 0)


def grown(name: str, how: str, frames: Frames) -> Float[np.ndarray, "windows"]:
    """Return the added loss of every window without a fifth of a model's parameters."""
    return of_windows(rows_of(frames["removals"], model=name, choice=how, removed="20%"))


def most(name: str, frames: Frames) -> list[float]:
    """Return the largest share of a layer in the smallest tenth."""
    return [max(rows_of(frames["places"], model=name).layers.iloc[0])]


SMALL, AS_MANY = (
    [Measure(f"added loss, {name}, {how}", partial(grown, name, how), 3, "+") for name in (SMOLLM2, EMBEDDED)]
    for how in (SMALLEST, AT_RANDOM)
)
PLACES = [Measure(f"largest share of a layer, {name}", partial(most, name), 2) for name in WINDOWS]


def end(of: Any, matrices: bool) -> Cell:
    """Return the cell of the smallest or largest share, with its layer."""

    def shown(rows: pd.DataFrame) -> str:
        shares = rows["matrices" if matrices else "layers"].iloc[0]
        return f"{of(shares):.2f}" + ("" if matrices else f" (layer {shares.index(of(shares))})")

    return Cell(shown)


STUDY = Study(
    protocol=__doc__,
    page="pruning",
    claim='"excessively low-weight parameters in certain layers of LLMs" are why models can be pruned (Section 4.3)',
    unit="windows of text",
    stated="before the run",
    predictions=(
        Prediction(
            "single small parameters can go: a fifth of all, the smallest",
            f"confirmed if the added loss is below {LITTLE} nats a token in both models, refuted if above {MUCH} in"
            " both",
            tuple(SMALL),
            lambda *grown: decide(all(of.high < LITTLE for of in grown), all(of.low > MUCH for of in grown)),
        ),
        Prediction(
            "they are in certain layers: the smallest tenth of all",
            f"confirmed if the largest share of a layer is above {TWICE} times an even one in both models, refuted if"
            f" below {EVEN} in both",
            tuple(PLACES),
            lambda *most: decide(all(of.value > TWICE for of in most), all(of.value < EVEN for of in most)),
        ),
    ),
    control=AS_MANY[0],
    headline="Without the smallest fifth of its layers' entries SmolLM2-135M loses {outcome} nats a token more, without"
    " as many at random {control} ({n} windows of text); small entries"
    " are in all layers nearly evenly.",
    against="At a fifth the interval reaches above the bound of little loss; without the smallest half SmolLM2-135M"
    " loses {Small parameters removed / SmolLM2-135M, smallest of all / 50%} nats more.",
    limits="Nothing is fitted anew. SmolLM2's matrices were in four bits before: their small entries are few values.",
    tables={
        "Small parameters removed": Table(
            "removals",
            ("model", "choice"),
            {"": Cell(of_windows, 3, "+")},
            columns="removed",
            note="Added loss, nats a token; random choices are means of three draws.",
        ),
        "Places of the smallest tenth": Table(
            "places",
            ("model",),
            {
                "the layer with the least": end(min, False),
                "the layer with the most": end(max, False),
                "the matrix with the least": end(min, True),
                "the matrix with the most": end(max, True),
            },
            note="Shares as multiples of an even one.",
        ),
    },
    measure=measure,
    settings={"windows": WINDOWS, "shares": SHARES, "draws": DRAWS},
)
