"""Scores of a model's matrices, by which those are chosen that a rounded model keeps finer."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from duat_jax.evaluation.running_text import mean_loss, token_losses
from duat_jax.forms.secant import secant
from duat_jax.models.layer_parts import written_out
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from duat_jax.weights.rounded import rounded, sizes_of_matrices
from duat_jax.weights.units import name_of, parameters_of
from experiments.bits.outputs import squares_of_outputs

EXACT, START, END, TRAPEZOID = "exact part", "first order", "gradient of the rounded model", "trapezoid"
SIGNED, SIZE, MEAN_SIZE = ", with its sign", ", size of the mean", ", mean of the sizes"
FEW = ", size of the mean, on the texts of runs"
OTHERS = FISHER, ROOT_FISHER, OF_MATRICES, ERROR, ROOT_ERROR, OUTPUTS, RELATIVE, ALONE, SET_BACK = (
    "Fisher information",
    "root of the Fisher information",
    "Fisher information of whole matrices",
    "squared error of the weights",
    "root of the squared error of the weights",
    "squared error of the outputs",
    "relative squared error of the outputs",
    "rounded alone, run",
    "set back alone, run",
)
CONTROLS = SMALLEST, EARLIEST, LATEST, WRITING = (
    "smallest first",
    "first layers first",
    "last layers first",
    "values and outputs first",
)
PARTS = EXACT, START, END, TRAPEZOID
WAYS: dict[str, Callable[[Any], Any]] = {
    SIGNED: np.mean,
    SIZE: lambda parts: abs(np.mean(parts)),
    MEAN_SIZE: lambda parts: np.mean(np.abs(parts)),
}
"""Functions that make one score of the parts of several texts."""
SCORES = (*(part + way for part in PARTS for way in WAYS), EXACT + FEW, *OTHERS, *CONTROLS)
"""All scores; controls need no text."""
Scores = dict[str, dict[str, float]]


@jax.jit
def _of_text(before: Transformer, after: Transformer, ids: Int[Array, "1 tokens"]) -> dict[str, dict[str, Array]]:
    """Return sums over every parameter for one text."""

    def loss(model: Transformer) -> Array:
        return token_losses(model, ids).mean()

    def sums(of: Callable[..., Array], *trees: Transformer) -> dict[str, Array]:
        found = jax.tree.map(of, *trees)
        return {name: leaf.sum() for name, leaf in parameters_of(written_out(found)).items()}

    change = jax.tree.map(jnp.subtract, after, before)
    start, end = jax.grad(loss)(before), jax.grad(loss)(after)
    return {
        EXACT: sums(lambda part: part, secant(loss)(after, before).parts),
        START: sums(jnp.multiply, start, change),
        END: sums(jnp.multiply, end, change),
        FISHER: sums(lambda g, c: (g * c) ** 2, start, change),
    }


def _with_one(before: Transformer, after: Transformer, name: str) -> Transformer:
    """Return a model with one matrix of another one."""
    found: Transformer = jax.tree_util.tree_map_with_path(
        lambda path, a, b: b if name_of(path) == name else a, before, after
    )
    return found


def changes_by_one(
    before: Transformer, after: Transformer, names: Iterable[str], ids: Int[np.ndarray, "texts tokens"]
) -> dict[str, float]:
    """Return by how much the mean loss of texts changes with one matrix of another model."""
    plain = mean_loss(before, ids)
    return {name: mean_loss(_with_one(before, after, name), ids) - plain for name in names}


def _without_text(sizes: dict[str, int]) -> Scores:
    """Return the scores that need no text."""
    order = {name: int(name.split(".")[1]) + place / len(sizes) for place, name in enumerate(sizes)}
    last, draw = max(order.values()) + 1, np.random.default_rng(0)
    writing = {name: name.endswith(("value.kernel", "output.kernel")) for name in sizes}
    return {
        SMALLEST: {name: 1 + 1e-6 * draw.random() for name in sizes},
        EARLIEST: {name: size * (last - order[name]) for name, size in sizes.items()},
        LATEST: {name: size * order[name] for name, size in sizes.items()},
        WRITING: {name: size * (writing[name] + draw.random()) for name, size in sizes.items()},
    }


def scores_of(model: Transformer, bits: int, ids: Int[np.ndarray, "texts tokens"], run: int) -> Scores:
    """Return every score of every matrix."""
    after, sizes = rounded(model, bits), sizes_of_matrices(model)
    rows = [on_host(_of_text(model, after, jnp.asarray(text[None]))) for text in ids]
    every = {kind: {name: np.array([float(row[kind][name]) for row in rows]) for name in sizes} for kind in rows[0]}
    every[TRAPEZOID] = {name: (every[START][name] + every[END][name]) / 2 for name in sizes}
    squares = [on_host(squares_of_outputs(model, after, jnp.asarray(text))) for text in ids]
    outputs: dict[str, Any] = {name: np.sum([row[name] for row in squares], 0, dtype=np.float64) for name in sizes}
    weights = [parameters_of(each) for each in (model, after)]
    errors = {name: float(((weights[1][name] - weights[0][name]) ** 2).sum()) for name in sizes}
    fine, few = rounded(model, bits, sizes), ids[:run]

    def of_parts(kind: str, reduce: Callable[[Any], Any], texts: int | None = None) -> dict[str, float]:
        return {name: float(reduce(parts[:texts])) for name, parts in every[kind].items()}

    def roots(scores: dict[str, float]) -> dict[str, float]:
        return {name: score**0.5 for name, score in scores.items()}

    fisher = of_parts(FISHER, np.mean)
    return {
        **{part + way: of_parts(part, reduce) for part in PARTS for way, reduce in WAYS.items()},
        EXACT + FEW: of_parts(EXACT, WAYS[SIZE], run),
        FISHER: fisher,
        ROOT_FISHER: roots(fisher),
        OF_MATRICES: of_parts(START, lambda parts: np.mean(parts**2)),
        ERROR: errors,
        ROOT_ERROR: roots(errors),
        OUTPUTS: {name: float(change) for name, (change, _) in outputs.items()},
        RELATIVE: {name: float(change / whole) for name, (change, whole) in outputs.items()},
        ALONE: changes_by_one(model, after, sizes, few),
        SET_BACK: {name: -change for name, change in changes_by_one(after, fine, sizes, few).items()},
        **_without_text(sizes),
    }
