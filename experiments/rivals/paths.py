"""Scores from gradients at more than one input: at both texts, and along a path that the model's own output gives."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.attribution.unit_values import Read, UnitValues, values_of
from duat_jax.attribution.units import _gradient, _minus, _times
from duat_jax.models.transformer import Transformer


def mean_of_gradients(model: Transformer, read: Read, x: Array, y: Array) -> UnitValues:
    """Score units by the mean of the gradients at both texts, times the change."""
    at_text, at_reference = _gradient(read, x), _gradient(read, y)
    return jax.tree.map(
        lambda g, g_reference, h, c: (g + g_reference) / 2 * (h - c),
        at_text[0],
        at_reference[0],
        at_text[1],
        at_reference[1],
    )


def eap_gp(model: Transformer, read: Read, x: Array, y: Array, *, steps: int) -> UnitValues:
    """Score units by the mean of the gradients on the path of `eap_gp_path`, times the change."""
    gradients = jax.lax.map(lambda z: _gradient(read, z)[0], eap_gp_path(model, x, y, steps=steps))
    return _times(jax.tree.map(lambda g: g.mean(0), gradients), _minus(values_of(read, x), values_of(read, y)))


def eap_gp_path(model: Transformer, x: Array, y: Array, *, steps: int) -> Array:
    """Return the points `z_1, z_2, ...` with `z_0 = x`, `z_{j+1} = z_j - g_j / ‖g_j‖`, `g_j = ∇ ‖f(z_j) - f(y)‖²`."""
    # `f` are the logits at all tokens, and each step has length one, whatever the scale of the embeddings.

    def logits(z: Array) -> Array:
        return model.head.logits(model.states(z), model.unembedding)

    of_reference = logits(y)

    def step(z: Array, _: None) -> tuple[Array, Array]:
        g = jax.grad(lambda z: jnp.square(logits(z) - of_reference).sum())(z)
        after = z - g / jnp.maximum(jnp.linalg.norm(g), jnp.finfo(g.dtype).tiny)
        return after, after

    return jax.lax.scan(step, x, None, length=steps)[1]
