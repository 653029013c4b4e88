"""Pruning of whole layers: scores, and compensation by an earlier layer's weights."""

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import DuatError
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.decomposition import KINDS
from duat_jax.models import layer_parts, sites
from duat_jax.models.ids import require_ids
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_layers
from duat_jax.nn.linear import PRECISION
from duat_jax.nn.stack import Stack
from duat_jax.pruning import prunable_layers
from duat_jax.pruning.calibration import in_batches, losses
from duat_jax.pruning.compensation import COMPENSATIONS, refitted
from duat_jax.pruning.resizing import rewrite, with_biases
from duat_jax.pruning.validation import fraction_problems, name_problems
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds


def _contributions(model: Transformer, ids: Array, before: Array, after: Array) -> Array:
    """Return the sum over tokens of `⟨u_i, x_i − x_{i−1}⟩²`, the squared contribution of each layer to the loss."""
    every = sites.streams(model.config.layers)
    recording = record_kinds(model.output, model.embed(ids[:, :-1]), (*KINDS, marks.STREAM))
    readout = jax.grad(lambda logits: losses(logits, ids[:, 1:]).sum())(recording.value)
    by_site = coefficients(recording, every[1:], readout)
    covectors = jnp.stack([by_site[site] for site in every[1:]])
    return ((covectors * (after - before)).sum(-1) ** 2).sum((1, 2))


def _block_influence(model: Transformer, ids: Array, before: Array, after: Array) -> Array:
    """Return the sum over tokens of `1 − cos(x_{i−1}, x_i)`."""
    lengths = [jnp.linalg.norm(x, axis=-1) for x in (before, after)]
    return (1 - (before * after).sum(-1) / (lengths[0] * lengths[1])).sum((1, 2))


METHODS: dict[str, Callable[[Transformer, Array, Array, Array], Array]] = {
    "contributions": _contributions,
    "block influence": _block_influence,
}
"""The ranking methods for layers: a layer's contribution to the loss, its mean square over tokens with every parameter
held, or the mean of `1 − cos(x_{i−1}, x_i)` (Men et al., "ShortGPT", 2024, Eq. 1)."""

RANDOM = "random"
RANKINGS = (*METHODS, RANDOM)
"""The ranking methods and a random choice."""


@partial(jax.jit, static_argnames="method")
def _score(model: Transformer, ids: Array, method: str) -> list[Array]:
    streams = sites.streams(model.config.layers)
    seen = record_kinds(model.output, model.embed(ids[:, :-1]), (marks.STREAM,)).seen
    x = jnp.stack([seen[site] for site in streams])
    return [METHODS[method](model, ids, x[:-1], x[1:])]


def layer_scores(model: Transformer, ids: Int[np.ndarray, "texts tokens"], method: str) -> Float[np.ndarray, "layers"]:
    """Return a score for each layer; the layer with the smallest score is removed first."""
    (total,) = in_batches(partial(_score, model, method=method), ids)
    return total / (ids.shape[0] * (ids.shape[1] - 1))


def least_important(
    model: Transformer, ids: Int[np.ndarray, "texts tokens"], count: int, method: str, *, seed: int = 0
) -> list[int]:
    """Return the indices of the layers with the smallest scores, sorted; the first layer is never among them."""
    drawn = np.random.default_rng(seed).random(model.config.layers)
    scores = drawn if method == RANDOM else layer_scores(model, ids, method)
    return sorted((1 + np.argsort(scores[1:], kind="stable")[:count]).tolist())


def how_many_layers(model: Transformer, fraction: float) -> int:
    """Return how many layers a fraction amounts to, at most all but the first."""
    return min(round(fraction * model.config.layers), model.config.layers - 1)


def prune_layers(
    model: Transformer,
    ids: Int[np.ndarray, "texts tokens"],
    fraction: float,
    *,
    method: str = "contributions",
    compensation: str = "refit",
    seed: int = 0,
) -> Transformer:
    """Return a smaller model without the layers of smallest score on calibration text.

    Args:
        model: a language model; it stays as it is.
        ids: calibration text, token ids `[texts, tokens]`.
        fraction: the fraction of layers to remove, in `[0, 1)`, rounded to whole layers; the first layer is kept.
        method: the ranking, such as `"contributions"` or `"random"`; an unknown one is answered with the list.
        compensation: the compensation for removed layers: `"none"`, `"mean"` or `"refit"`.
        seed: the seed of a random choice.

    Raises:
        DuatError: if an argument is wrong; the message names every problem.
        InvalidInput: if there is no calibration text, or it has an id outside the model's vocabulary.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> ids = np.arange(40, dtype=np.int32).reshape(2, 20)
        >>> prune_layers(duat.load(), ids, 1 / 3, method="block influence", compensation="mean").config.layers
        4
    """
    require_layers(model.config)
    if problems := fraction_problems([fraction]) + name_problems("method", [method], RANKINGS):
        raise DuatError("; ".join(problems))
    require_ids(model.config, {"the calibration text": ids})
    count = how_many_layers(model, fraction)
    if count == 0:
        return layer_parts.written_out(model)
    return remove_layers(model, ids, least_important(model, ids, count, method, seed=seed), compensation=compensation)


def compensation_problems(model: Transformer, compensation: str) -> list[str]:
    """Return an error message if an earlier layer can't compensate for a removed layer."""
    normed = (block.arrangement == "post-norm" or block.output_norms for block in model.config.blocks)
    if compensation == "none" or not any(normed):
        return []
    return ["a norm stands between the MLP's output and the residual stream: choose compensation 'none'"]


@partial(jax.jit, static_argnames=("layer", "end"))
def _missing(model: Transformer, ids: Array, layer: int, end: int) -> list[Array]:
    """Return sums over tokens, `a, aaᵀ, y, ayᵀ`, of a layer's activations and the sum of the next layers' updates."""
    streams, site = sites.streams(model.config.layers), sites.neurons(layer)
    seen = record_kinds(model.output, model.embed(ids[:, :-1]), (marks.STREAM, marks.POINT)).seen
    a, y = (x.reshape(-1, x.shape[-1]) for x in (seen[site], seen[streams[end]] - seen[streams[layer + 1]]))
    return [total for values in (a, y) for total in (values.sum(0), jnp.matmul(a.T, values, precision=PRECISION))]


def remove_layers(
    model: Transformer, ids: Int[np.ndarray, "texts tokens"], layers: Iterable[int], *, compensation: str = "refit"
) -> Transformer:
    """Return a smaller model without some of its layers.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> remove_layers(duat.load(), np.arange(40, dtype=np.int32).reshape(2, 20), [2, 3]).config.layers
        4
    """
    # The update of neighbouring removed layers, `y = x_end − x_begin`, is compensated in the layer before them: its
    # mean is folded into that layer's bias, `b_3 + E y`, or its `W_3` and `b_3` are refitted by least squares to its
    # own output plus `y`.
    removed = prunable_layers.chosen(model, layers)
    problems = prunable_layers.problems_of(model, removed)
    if 0 in removed:
        problems.append("the first layer can't be removed: no earlier layer could compensate for it")
    problems += name_problems("compensation", [compensation], COMPENSATIONS) or compensation_problems(
        model, compensation
    )
    if problems:
        raise DuatError("; ".join(problems))
    smaller = layer_parts.written_out(model) if compensation == "none" else with_biases(model)
    kept = [layer for layer in range(model.config.layers) if layer not in removed]
    for layer, after in pairwise([*kept, model.config.layers]):
        if compensation == "none" or after == layer + 1:
            continue
        output = layer_parts.mlps(smaller)[layer].output
        total = in_batches(partial(_missing, model, layer=layer, end=after), ids)
        tokens = ids.shape[0] * (ids.shape[1] - 1)
        mean, products, target, with_target = (part / tokens for part in total)
        added = np.zeros_like(with_target)
        if compensation == "refit":
            added = refitted(products - np.outer(mean, mean), with_target - np.outer(mean, target), tokens)
        rewrite(output, np.asarray(output.kernel[...], np.float64) + added, target - mean @ added)
    smaller.stack = Stack(smaller.stack.blocks[layer] for layer in kept)
    smaller.config = dataclasses.replace(smaller.config, blocks=tuple(smaller.config.blocks[layer] for layer in kept))
    return smaller
