"""The feed-forward layer: one term of the closed form per block."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.marks import term
from duat_jax.nn.linear import Linear

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
}


class MLP(nnx.Module):
    """Apply `FFN(x) = σ(x W2 + b2) W3 + b3` (Wang & Li, Eq. 6).

    Args:
        features: width of the residual stream.
        neurons: number of hidden units.
        activation: a name in `ACTIVATIONS`.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights.
    """

    def __init__(
        self, features: int, neurons: int, activation: str, *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs
    ) -> None:
        self.activation = activation
        self.input = Linear(features, neurons, "mlp.input", dtype=dtype, rngs=rngs)
        self.output = Linear(neurons, features, "mlp.output", dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Apply the MLP to every token.

        Args:
            x: `[..., tokens, features]`.
        """
        activation = ACTIVATIONS[self.activation]
        return self.output.add_bias(term(activation, self.input(x), "mlp", outer=self.output.multiply))
