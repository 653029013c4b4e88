"""Moments of a model's neurons on calibration text, from which scores and refits are computed."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.decomposition import KINDS
from duat_jax.models import sites
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.recording import record_kinds

BATCH = 4
"""Largest number of texts in one batch."""


class Moments(NamedTuple):
    """Moments of one layer's activations `a`: means over all tokens of calibration text.

    The weights `w` are the rate at which the loss changes with a neuron's activation: `g`, with everything after it
    computed anew, or `u`, with every parameter held.

    Args:
        mean: `E a`.
        products: `E a aᵀ`.
        absolute: `E |w a|`.
        squares: `E w²`, `E w² a` and `E w² a²`.
        tokens: the number of tokens.
    """

    mean: Float[np.ndarray, "neurons"]
    products: Float[np.ndarray, "neurons neurons"]
    absolute: Float[np.ndarray, "neurons"]
    squares: Float[np.ndarray, "3 neurons"]
    tokens: int

    @property
    def covariance(self) -> Float[np.ndarray, "neurons neurons"]:
        """`E (a − E a)(a − E a)ᵀ`."""
        return self.products - np.outer(self.mean, self.mean)


Weights = Callable[[Transformer, Array], tuple[list[Array], list[Array]]]
"""From a model and texts, `[batch, tokens]`, to each layer's activations and weights, `[batch, tokens, neurons]`."""


def losses(logits: Float[Array, "... tokens vocab"], ids: Int[Array, "... tokens"]) -> Float[Array, "... tokens"]:
    """Return the cross-entropy `−log p` of every token, in nats."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[..., None], -1)[..., 0]


def gradients(model: Transformer, ids: Int[Array, "batch tokens"]) -> tuple[list[Array], list[Array]]:
    """Return each layer's activations, and the gradients of each text's loss in them: `w = g = ∂loss/∂a`."""
    every = [sites.neurons(layer) for layer in range(model.config.layers)]
    x = model.embed(ids[:, :-1])

    def loss(added: list[Array]) -> tuple[Array, list[Array]]:
        edits = {site: Edit(added=value) for site, value in zip(every, added, strict=True)}
        recording = record_kinds(edit(model.output, edits), x, (marks.POINT,))
        return losses(recording.value, ids[:, 1:]).sum(), [recording.seen[site] for site in every]

    zeros = [jnp.zeros((*x.shape[:-1], block.neurons), x.dtype) for block in model.config.blocks]
    weights, activations = jax.grad(loss, has_aux=True)(zeros)
    return activations, weights


def held_coefficients(model: Transformer, ids: Int[Array, "batch tokens"]) -> tuple[list[Array], list[Array]]:
    """Return each layer's activations, and their coefficients in the loss with all dynamic parameters held: `w = u`."""
    # The read-out is the loss's own gradient in the logits, `r = p − 1[next token]`; pulled back through the linear
    # path it is `u`, and with `C_j` the term's outer weight, `u_j = C_jᵀ r`: the contribution of a neuron is `u a`.
    every = [sites.neurons(layer) for layer in range(model.config.layers)]
    recording = record_kinds(model.output, model.embed(ids[:, :-1]), (*KINDS, marks.POINT))
    readout = jax.grad(lambda logits: losses(logits, ids[:, 1:]).sum())(recording.value)
    covectors = coefficients(recording, every, readout)
    return [recording.seen[site] for site in every], [covectors[site] for site in every]


WEIGHTS: dict[str, Weights] = {"gradient": gradients, "contribution": held_coefficients}
"""The weights of a neuron's activation, by name."""


def in_batches(
    sums: Callable[[Array], Iterable[Array]],
    ids: Int[np.ndarray, "texts tokens"],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[np.ndarray]:
    """Add up sums over all texts, a batch at a time, in double precision."""
    if len(ids) < 1 or ids.shape[1] < 2:
        raise InvalidInput("there is no calibration text: give at least one text of two tokens")
    totals: list[np.ndarray] = []
    # All batches have one size, so that one compiled program reads them.
    batch = next(size for size in range(min(BATCH, len(ids)), 0, -1) if len(ids) % size == 0)
    for start in range(0, len(ids), batch):
        batch_sums = [np.array(part, np.float64) for part in sums(jnp.asarray(ids[start : start + batch]))]
        totals = [total + part for total, part in zip(totals, batch_sums, strict=True)] if totals else batch_sums
        if progress is not None:
            progress(start + batch, len(ids))
    return totals


@partial(jax.jit, static_argnames="weights")
def _sums(model: Transformer, ids: Array, weights: Weights) -> list[Array]:
    def of_layer(a: Array, w: Array) -> list[Array]:
        a, w = (values.reshape(-1, values.shape[-1]) for values in (a, w))
        squares = jnp.stack([(w**2 * power).sum(0) for power in (jnp.ones_like(a), a, a**2)])
        return [a.sum(0), jnp.matmul(a.T, a, precision=PRECISION), jnp.abs(w * a).sum(0), squares]

    return [total for pair in zip(*weights(model, ids), strict=True) for total in of_layer(*pair)]


def moments(
    model: Transformer,
    ids: Int[np.ndarray, "texts tokens"],
    weights: str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Moments]:
    """Return the moments of every layer's neurons on calibration text.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> layers = moments(duat.load(), np.arange(12, dtype=np.int32).reshape(2, 6), "contribution")
        >>> len(layers), layers[0].products.shape
        (6, (768, 768))
    """
    sums = in_batches(partial(_sums, model, weights=WEIGHTS[weights]), ids, progress=progress)
    tokens = ids.shape[0] * (ids.shape[1] - 1)
    means = [total / tokens for total in sums]
    chunks = [means[i : i + 4] for i in range(0, len(means), 4)]
    return [Moments(mean, products, absolute, squares, tokens) for mean, products, absolute, squares in chunks]
