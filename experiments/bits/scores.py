"""Scores of a model's matrices, by which those are chosen that a rounded model keeps finer."""

from collections.abc import Callable
from functools import partial
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

SIZE_OF_PART, MEAN_SIZE, SIGNED = "size of the part", "mean size of the parts of texts", "signed part"
TRAPEZOID, FIRST_ORDER, SIGNED_FIRST = "size by the trapezoid", "size to first order", "signed, to first order"
FISHER, ERROR, SMALLEST, PUT_IN = "Fisher information", "squared error of weights", "smallest first", "rounded alone"
EARLIEST, LATEST = "first layers first", "last layers first"
SCORES = (
    SIZE_OF_PART,
    MEAN_SIZE,
    SIGNED,
    TRAPEZOID,
    FIRST_ORDER,
    SIGNED_FIRST,
    FISHER,
    ERROR,
    PUT_IN,
    SMALLEST,
    EARLIEST,
    LATEST,
)
"""All scores; the last three need no text, as controls."""
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
        SIGNED: sums(lambda part: part, secant(loss)(after, before).parts),
        SIGNED_FIRST: sums(jnp.multiply, start, change),
        TRAPEZOID: sums(lambda a, b, c: (a + b) / 2 * c, start, end, change),
        FISHER: sums(lambda g, c: (g * c) ** 2, start, change),
    }


@partial(jax.jit, static_argnames="name")
def _with_one(before: Transformer, after: Transformer, name: str) -> Transformer:
    """Return a model with one matrix of another one."""

    def of_leaf(path: Any, a: Array, b: Array) -> Array:
        return b if name_of(path) == name else a

    found: Transformer = jax.tree_util.tree_map_with_path(of_leaf, before, after)
    return found


def scores_of(model: Transformer, bits: int, ids: Int[np.ndarray, "texts tokens"], run: int) -> Scores:
    """Return every score of every matrix.

    Args:
        model: the model that is rounded, its layers written out.
        bits: to how many bits.
        ids: the texts that scores are computed on.
        run: on how many of them the model is run with single matrices rounded.
    """
    after, sizes = rounded(model, bits), sizes_of_matrices(model)
    rows = [on_host(_of_text(model, after, jnp.asarray(text[None]))) for text in ids]
    every = {kind: {name: np.array([float(row[kind][name]) for row in rows]) for name in sizes} for kind in rows[0]}
    means = {kind: {name: float(of.mean()) for name, of in named.items()} for kind, named in every.items()}
    plain = mean_loss(model, ids[:run])
    weights = {name: parameters_of(each) for name, each in (("before", model), ("after", after))}
    order = {name: place for place, name in enumerate(sizes, 1)}
    return {
        SIZE_OF_PART: {name: abs(part) for name, part in means[SIGNED].items()},
        MEAN_SIZE: {name: float(np.abs(of).mean()) for name, of in every[SIGNED].items()},
        SIGNED: means[SIGNED],
        TRAPEZOID: {name: abs(part) for name, part in means[TRAPEZOID].items()},
        FIRST_ORDER: {name: abs(part) for name, part in means[SIGNED_FIRST].items()},
        SIGNED_FIRST: means[SIGNED_FIRST],
        FISHER: means[FISHER],
        ERROR: {name: float(((weights["after"][name] - weights["before"][name]) ** 2).sum()) for name in sizes},
        PUT_IN: {name: mean_loss(_with_one(model, after, name), ids[:run]) - plain for name in sizes},
        SMALLEST: dict.fromkeys(sizes, 1.0),
        EARLIEST: {name: size / order[name] for name, size in sizes.items()},
        LATEST: {name: size * float(order[name]) for name, size in sizes.items()},
    }
