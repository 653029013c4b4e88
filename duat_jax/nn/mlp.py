"""The feed-forward layer: one term of the closed form per block."""

from collections.abc import Callable
from functools import partial
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.nn.linear import Linear
from duat_jax.transform.marks import hold, term

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
}


@final
class MLP(nnx.Module):
    """Apply `FFN(x) = σ(x W2 + b2) W3 + b3` (Wang & Li, Eq. 6).

    Args:
        features: width of the residual stream.
        neurons: number of hidden units.
        activation: a name in `ACTIVATIONS`.
        bias: whether there are biases.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; zeros without it.
    """

    def __init__(
        self,
        features: int,
        neurons: int,
        activation: str,
        *,
        bias: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        self.activation = activation
        self.input = Linear(features, neurons, "mlp.input", bias=bias, dtype=dtype, rngs=rngs)
        self.output = Linear(neurons, features, "mlp.output", bias=bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Apply the MLP to every token.

        Args:
            x: `[..., tokens, features]`.
        """
        activation = ACTIVATIONS[self.activation]
        return self.output.add_bias(term(activation, self.input(x), "mlp", outer=self.output.multiply))


@final
class GatedMLP(nnx.Module):
    """Apply `FFN(x) = (σ(x W2 + b2) ⊙ u) W3 + b3` with the held factor `u = x W_u + b_u`.

    It is a term whose outer weight is dynamic, `diag(u) W3`. Checkpoints call the three maps `gate_proj` (`W2`),
    `up_proj` (`W_u`) and `down_proj` (`W3`).

    Args:
        features: width of the residual stream.
        neurons: number of hidden units.
        activation: a name in `ACTIVATIONS`.
        bias: whether there are biases.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; zeros without it.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020, Eq. 6.
    """

    def __init__(
        self,
        features: int,
        neurons: int,
        activation: str,
        *,
        bias: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        self.activation = activation
        self.input = Linear(features, neurons, "mlp.input", bias=bias, dtype=dtype, rngs=rngs)
        self.factor = Linear(features, neurons, "mlp.factor", bias=bias, dtype=dtype, rngs=rngs)
        self.output = Linear(neurons, features, "mlp.output", bias=bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Apply the MLP to every token.

        Args:
            x: `[..., tokens, features]`.
        """
        factor = hold(self.factor(x), "mlp.factor")

        def outer(activated: Float[Array, "... tokens neurons"]) -> Float[Array, "... tokens features"]:
            return self.output.multiply(activated * factor)

        return self.output.add_bias(term(ACTIVATIONS[self.activation], self.input(x), "mlp", outer=outer))
