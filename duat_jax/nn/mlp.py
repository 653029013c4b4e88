"""Feed-forward layers: one term of the closed form per block."""

from collections.abc import Callable
from functools import partial
from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.nn.linear import Linear
from duat_jax.transform.marks import hold, point, term

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "quick_gelu": lambda z: z * jax.nn.sigmoid(1.702 * z),
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
        rngs: source of the random initial weights; `None` gives zeros.
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
        outer = _marking_neurons(self.output.multiply)
        return self.output.add_bias(term(activation, self.input(x), "mlp", outer=outer))


def _marking_neurons(outer: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return the outer map with its operand, the neurons, marked as a point."""
    return lambda neurons: outer(point(neurons, "mlp.neurons"))


@final
class GatedMLP(nnx.Module):
    """Apply `FFN(x) = (σ(g) ⊙ u) W3 + b3` with `g = x W2 + b2` and `u = x W_u + b_u`.

    As a term its outer weight is dynamic, `diag(u) W3`, with `u` held. The collapse may also carry `u`.

    Checkpoints call the three maps `gate_proj` (`W2`), `up_proj` (`W_u`) and `down_proj` (`W3`).

    Args:
        features: width of the residual stream.
        neurons: number of hidden units.
        activation: a name in `ACTIVATIONS`.
        bias: whether there are biases.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

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
        activation = ACTIVATIONS[self.activation]
        gated = gated_term(activation, self.input(x), self.factor(x), self.output.multiply)
        return self.output.add_bias(gated)


def gated_term(
    activation: Callable[[Array], Array],
    gate: Float[Array, "... neurons"],
    factor: Float[Array, "... neurons"],
    outer: Callable[[Array], Array],
) -> Float[Array, "... features"]:
    """Return `outer(σ(g) ⊙ u)` as one term, with `u` held."""
    outer, held_factor = _marking_neurons(outer), hold(factor, "mlp.factor")
    return term(activation, gate, "mlp", outer=lambda activated: outer(activated * held_factor))
