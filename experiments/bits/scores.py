"""Scores of a model's matrices, by which those are chosen that a rounded model keeps finer."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from duat_jax.evaluation.running_text import token_losses
from duat_jax.forms.secant import secant
from duat_jax.models.layer_parts import written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.stack import Stack
from duat_jax.processes import on_host
from duat_jax.weights.rounded import rounded, sizes_of_matrices
from duat_jax.weights.units import LAYERS, name_of, parameters_of
from experiments.bits.outputs import squares_of_outputs

EXACT, START, END, TRAPEZOID = "exact part", "first order", "gradient of the rounded model", "trapezoid"
SIGNED, SIZE, MEAN_SIZE = ", with its sign", ", size of the mean", ", mean of the sizes"
FEW = ", size of the mean, on the texts of runs"
FISHER, OF_MATRICES, ERROR = (
    "Fisher information",
    "Fisher information of whole matrices",
    "squared error of the weights",
)
ROOT_FISHER, ROOT_ERROR = "root of the Fisher information", "root of the squared error of the weights"
OUTPUTS, RELATIVE = "squared error of the outputs", "relative squared error of the outputs"
ALONE, SET_BACK = "rounded alone, run", "set back alone, run"
SMALLEST, EARLIEST, LATEST, WRITING = (
    "smallest first",
    "first layers first",
    "last layers first",
    "values and outputs first",
)
PARTS = EXACT, START, END, TRAPEZOID
SCORES = (
    *(part + way for part in PARTS for way in (SIGNED, SIZE, MEAN_SIZE)),
    EXACT + FEW,
    FISHER,
    ROOT_FISHER,
    OF_MATRICES,
    ERROR,
    ROOT_ERROR,
    OUTPUTS,
    RELATIVE,
    ALONE,
    SET_BACK,
    SMALLEST,
    EARLIEST,
    LATEST,
    WRITING,
)
"""All scores; the last four need no text, as controls."""
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


@partial(jax.jit, static_argnames="layer")
def _stream(model: Transformer, ids: Int[Array, "texts tokens"], layer: int) -> Array:
    """Return the residual stream before a layer."""
    return model.stream(model.embed(ids[:, :-1]), layer)


@partial(jax.jit, static_argnames="layer")
def _loss_from(model: Transformer, stream: Array, ids: Int[Array, "texts tokens"], layer: int) -> Array:
    """Return the mean loss of texts from the stream before a layer on."""
    rest = jax.tree.map(lambda leaf: leaf, model)  # a copy, which is changed
    rest.embedding_norm = rest.projection = None
    rest.stack = Stack(model.stack.blocks[layer:])
    logs = jax.nn.log_softmax(rest.output(stream))
    return -jnp.take_along_axis(logs, ids[:, 1:, None], -1).mean()


def changes_by_one(
    before: Transformer, after: Transformer, names: Iterable[str], ids: Int[Array, "texts tokens"]
) -> dict[str, float]:
    """Return by how much the mean loss of texts changes with one matrix of another model."""
    # The layers before the matrix compute what they do without it, so that the model is run from its layer on.
    found = {}
    for layer, of_layer in groupby(names, lambda name: int(name.removeprefix(LAYERS).partition(".")[0])):
        stream = _stream(before, ids, layer)
        plain = float(_loss_from(before, stream, ids, layer))
        for name in of_layer:
            found[name] = float(_loss_from(_with_one(before, after, name), stream, ids, layer)) - plain
    return found


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
    fine, few = rounded(model, bits, sizes), jnp.asarray(ids[:run])

    def reduce_parts(kind: str, reduce: Callable[[Any], Any], texts: int | None = None) -> dict[str, float]:
        return {name: float(reduce(parts[:texts])) for name, parts in every[kind].items()}

    found: Scores = {}
    for part in PARTS:
        found |= {
            part + SIGNED: reduce_parts(part, np.mean),
            part + SIZE: reduce_parts(part, lambda parts: abs(np.mean(parts))),
        }
        found[part + MEAN_SIZE] = reduce_parts(part, lambda parts: np.mean(np.abs(parts)))
    found[EXACT + FEW] = reduce_parts(EXACT, lambda parts: abs(np.mean(parts)), run)
    found[FISHER] = reduce_parts(FISHER, np.mean)
    found[OF_MATRICES] = reduce_parts(START, lambda parts: np.mean(parts**2))
    found |= {ROOT_FISHER: {name: score**0.5 for name, score in found[FISHER].items()}, ERROR: errors}
    found[ROOT_ERROR] = {name: score**0.5 for name, score in errors.items()}
    found[OUTPUTS] = {name: float(change) for name, (change, _) in outputs.items()}
    found[RELATIVE] = {name: float(change / whole) for name, (change, whole) in outputs.items()}
    found[ALONE] = changes_by_one(model, after, list(sizes), few)
    found[SET_BACK] = {name: -change for name, change in changes_by_one(after, fine, list(sizes), few).items()}
    return found | _without_text(sizes)
