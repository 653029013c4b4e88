"""The read-out of one run's weights with the dynamic parameters of another run."""

from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.models.head import Logits
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import alike


def under_dynamics(weights: Transformer, dynamics: Transformer) -> Transformer:
    """Return a model whose read-out has one run's weights, with another run's logits where these are held."""
    # A soft cap's ratios and a log-probability's probabilities are those of the other run.
    mixed = jax.tree.map(lambda leaf: leaf, dynamics)
    mixed.head = _AdaptedReadOut(weights, dynamics)
    return mixed


@final
class _AdaptedReadOut(nnx.Module):
    """A read-out as targets use it."""

    def __init__(self, weights: Transformer, dynamics: Transformer) -> None:
        self.weights, self.dynamics = weights, dynamics

    def at(
        self, state: Float[Array, "features"], embedding: Any, outputs: Int[Array, "outputs"] | None = None
    ) -> Logits:
        """Return the logits of the other run, with the parameters that read them by these weights."""
        held, bias = self.dynamics.logits_at(state, outputs), self.weights.head.bias
        wanted = slice(None) if outputs is None else outputs
        constants = jnp.zeros_like(held.values) if bias is None else held.ratios * alike(bias[wanted], state)
        return Logits(held.values, alike(self.rows(embedding)[wanted], state), held.ratios, constants)

    def pooled(self, states: Any, mask: Any = None) -> Array:
        """Return the state at which classes are read."""
        return self.dynamics.head.pooled(states, mask)

    def rows(self, embedding: Any) -> Float[Array, "outputs features"]:
        """Return the unembedding."""
        return self.weights.unembedding
