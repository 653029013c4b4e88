"""Remove whole layers: what each adds to the stream, scores, and what an earlier layer's weights can take over."""

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.errors import DuatError
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.decomposition import KINDS
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.nn.stack import Stack
from duat_jax.pruning import places
from duat_jax.pruning.calibration import in_batches, losses
from duat_jax.pruning.compensation import COMPENSATIONS, refitted
from duat_jax.pruning.resizing import resized, rewrite
from duat_jax.pruning.validation import not_shares, unknown
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds


def _contributions(model: Transformer, ids: Array, before: Array, after: Array) -> Array:
    """Return the sum over tokens of `⟨u_i, x_i − x_{i−1}⟩²`, the square of what a layer contributes to the loss."""
    sites = places.streams(model.config.layers)
    recording = record_kinds(model.output, model.embed(ids[:, :-1]), (*KINDS, marks.STREAM))
    readout = jax.grad(lambda logits: losses(logits, ids[:, 1:]).sum())(recording.value)
    found = coefficients(recording, sites[1:], readout)
    covectors = jnp.stack([found[site] for site in sites[1:]])
    return ((covectors * (after - before)).sum(-1) ** 2).sum((1, 2))


def _block_influence(model: Transformer, ids: Array, before: Array, after: Array) -> Array:
    """Return the sum over tokens of `1 − cos(x_{i−1}, x_i)`."""
    lengths = [jnp.linalg.norm(x, axis=-1) for x in (before, after)]
    return (1 - (before * after).sum(-1) / (lengths[0] * lengths[1])).sum((1, 2))


METHODS: dict[str, Callable[[Transformer, Array, Array, Array], Array]] = {
    "contributions": _contributions,
    "block influence": _block_influence,
}
"""Every method that ranks layers: a layer's contribution to the loss, its mean square over tokens with every parameter
held, or the mean of `1 − cos(x_{i−1}, x_i)` (Men et al., "ShortGPT", 2024, Eq. 1)."""

RANDOM = "random"
RANKINGS = (*METHODS, RANDOM)
"""Beside them: layers drawn from a seed."""


@partial(jax.jit, static_argnames="method")
def _score(model: Transformer, ids: Array, method: str) -> list[Array]:
    streams = places.streams(model.config.layers)
    seen = record_kinds(model.output, model.embed(ids[:, :-1]), (marks.STREAM,)).seen
    x = jnp.stack([seen[site] for site in streams])
    return [METHODS[method](model, ids, x[:-1], x[1:])]


def layer_scores(model: Transformer, ids: Int[np.ndarray, "texts tokens"], method: str) -> Float[np.ndarray, "layers"]:
    """Return a number for each layer; what is smallest is removed first.

    Args:
        model: a language model.
        ids: calibration text, token ids `[texts, tokens]`.
        method: a name in `METHODS`.
    """
    (total,) = in_batches(partial(_score, model, method=method), ids)
    return total / (ids.shape[0] * (ids.shape[1] - 1))


def least(
    model: Transformer, ids: Int[np.ndarray, "texts tokens"], count: int, method: str, *, seed: int = 0
) -> list[int]:
    """Return which layers go first, by their numbers; the first layer stays.

    Args:
        model: a language model.
        ids: calibration text, token ids `[texts, tokens]`.
        count: how many.
        method: a name in `METHODS`, or `RANDOM`.
        seed: of a random choice.
    """
    drawn = np.random.default_rng(seed).random(model.config.layers)
    scores = drawn if method == RANDOM else layer_scores(model, ids, method)
    return sorted((1 + np.argsort(scores[1:], kind="stable")[:count]).tolist())


def how_many_layers(model: Transformer, fraction: float) -> int:
    """Return how many layers a share of them is, all but the first at most.

    Args:
        model: the model.
        fraction: the share.
    """
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
    """Return a smaller model: the layers that matter least on calibration text are removed, as by `remove_layers`.

    Args:
        model: a language model; it stays as it is.
        ids: calibration text, token ids `[texts, tokens]`.
        fraction: which share of the layers goes, of `[0, 1)`, to the nearest whole number; the first layer stays.
        method: how layers are ranked, a name in `METHODS`, or `RANDOM`.
        compensation: what takes their place: `"none"`, `"mean"` or `"refit"`.
        seed: of a random choice.

    Raises:
        DuatError: naming everything that is wrong with these.
        BadText: if there is no calibration text.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> ids = np.arange(40, dtype=np.int32).reshape(2, 20)
        >>> prune_layers(duat.load(), ids, 1 / 3, method="block influence", compensation="mean").config.layers
        4
    """
    if problems := not_shares([fraction]) + unknown("method", [method], RANKINGS):
        raise DuatError("; ".join(problems))
    count = how_many_layers(model, fraction)
    if count == 0:
        return nnx.clone(model)
    return remove_layers(model, ids, least(model, ids, count, method, seed=seed), compensation=compensation)


def uncompensated(model: Transformer, compensation: str) -> list[str]:
    """Return what keeps an earlier layer from taking a removed one's place.

    Args:
        model: the model.
        compensation: a name in `COMPENSATIONS`.
    """
    normed = (block.arrangement == "post-norm" or block.output_norms for block in model.config.blocks)
    if compensation == "none" or not any(normed):
        return []
    return ["a norm stands between the MLP's output and the stream: choose compensation 'none'"]


@partial(jax.jit, static_argnames=("layer", "end"))
def _missing(model: Transformer, ids: Array, layer: int, end: int) -> list[Array]:
    """Return sums over tokens, `a, aaᵀ, y, ayᵀ`, of a layer's neurons and of what the next layers, up to `end`, add."""
    streams, site = places.streams(model.config.layers), places.neurons(layer)
    seen = record_kinds(model.output, model.embed(ids[:, :-1]), (marks.STREAM, marks.POINT)).seen
    a, y = (x.reshape(-1, x.shape[-1]) for x in (seen[site], seen[streams[end]] - seen[streams[layer + 1]]))
    return [total for one in (a, y) for total in (one.sum(0), jnp.matmul(a.T, one, precision=PRECISION))]


def remove_layers(
    model: Transformer, ids: Int[np.ndarray, "texts tokens"], layers: Iterable[int], *, compensation: str = "refit"
) -> Transformer:
    """Return a smaller model, without some of its layers.

    What neighbouring layers added, `y = x_end − x_begin`, is left to the layer before them: its mean is folded into
    that one's bias, `b_3 + E y`, or `W_3` and `b_3` are refitted by least squares to what they and `y` wrote together.

    Args:
        model: a language model; it stays as it is.
        ids: calibration text, token ids `[texts, tokens]`.
        layers: which layers go; the first one stays, for nothing before it could take its place.
        compensation: what takes their place: `"none"`, `"mean"` or `"refit"`.

    Raises:
        DuatError: naming everything that is wrong with these.
        BadText: if there is no calibration text.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> remove_layers(duat.load(), np.arange(40, dtype=np.int32).reshape(2, 20), [2, 3]).config.layers
        4
    """
    gone = places.chosen(model, layers)
    problems = places.problems_of(model, gone)
    if 0 in gone:
        problems.append("the first layer stays: nothing before it could take its place")
    problems += unknown("compensation", [compensation], COMPENSATIONS) or uncompensated(model, compensation)
    if problems:
        raise DuatError("; ".join(problems))
    rest = nnx.clone(model) if compensation == "none" else resized(model, {}, bias=True)
    stay = [layer for layer in range(model.config.layers) if layer not in gone]
    for layer, after in pairwise([*stay, model.config.layers]):
        if compensation == "none" or after == layer + 1:
            continue
        output = places.mlps(rest)[layer].output
        total = in_batches(partial(_missing, model, layer=layer, end=after), ids)
        tokens = ids.shape[0] * (ids.shape[1] - 1)
        mean, products, target, with_target = (part / tokens for part in total)
        added = np.zeros_like(with_target)
        if compensation == "refit":
            added = refitted(products - np.outer(mean, mean), with_target - np.outer(mean, target), tokens)
        rewrite(output, np.asarray(output.kernel[...], np.float64) + added, target - mean @ added)
    rest.stack = Stack(rest.stack.blocks[layer] for layer in stay)
    rest.config = dataclasses.replace(rest.config, blocks=tuple(rest.config.blocks[layer] for layer in stay))
    return rest
