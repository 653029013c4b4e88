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


CARRIERS = ("gate", "factor", "halves")
"""What may carry the neurons of a gated MLP."""


def _identity(z: Array) -> Array:
    return z


@final
class GatedMLP(nnx.Module):
    """Apply `FFN(x) = (σ(g) ⊙ u) W3 + b3` with `g = x W2 + b2` and `u = x W_u + b_u`.

    As a term it has a gauge: which of the two factors flows, and which one is held. The neurons' contributions are the
    same in each, and all sum exactly; what differs is the way back into the neurons: pre-activations, the collapse.

    | carries | the term |
    |---|---|
    | `"gate"` | `W3 = diag(u) W3`, `σ(g)` |
    | `"factor"` | `W3 = diag(σ(g)) W3`, `u`: linear in its pre-activation |
    | `"halves"` | half of each |

    Checkpoints call the three maps `gate_proj` (`W2`), `up_proj` (`W_u`) and `down_proj` (`W3`).

    Args:
        features: width of the residual stream.
        neurons: number of hidden units.
        activation: a name in `ACTIVATIONS`.
        carries: what carries the neurons, a name in `CARRIERS`.
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
        carries: str = "gate",
        bias: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        self.activation = activation
        self.carries = carries
        self.input = Linear(features, neurons, "mlp.input", bias=bias, dtype=dtype, rngs=rngs)
        self.factor = Linear(features, neurons, "mlp.factor", bias=bias, dtype=dtype, rngs=rngs)
        self.output = Linear(neurons, features, "mlp.output", bias=bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Apply the MLP to every token.

        Args:
            x: `[..., tokens, features]`.
        """
        activation = ACTIVATIONS[self.activation]
        gated = gated_term(activation, self.input(x), self.factor(x), self.carries, self.output.multiply)
        return self.output.add_bias(gated)


def gated_term(
    activation: Callable[[Array], Array],
    gate: Float[Array, "... neurons"],
    factor: Float[Array, "... neurons"],
    carries: str,
    outer: Callable[[Array], Array],
    factor_activation: Callable[[Array], Array] = _identity,
) -> Float[Array, "... features"]:
    """Return `outer(σ(g) ⊙ τ(u))`, marked.

    Args:
        activation: `σ`.
        gate: `g`, `[..., neurons]`.
        factor: `u`, `[..., neurons]`.
        carries: which of them flows, a name in `CARRIERS`.
        outer: the linear map `W3`.
        factor_activation: `τ`, the identity in most models.
    """
    if carries == "gate":
        held = hold(factor_activation(factor), "mlp.factor")
        return term(activation, gate, "mlp", outer=lambda activated: outer(activated * held))
    if carries == "factor":
        open_ = hold(activation(gate), "mlp.gate")
        return term(factor_activation, factor, "mlp", outer=lambda carried: outer(carried * open_))
    held, open_ = hold(factor_activation(factor), "mlp.factor"), hold(activation(gate), "mlp.gate")
    by_gate = term(activation, gate, "mlp.by_gate") * held
    return outer(0.5 * (by_gate + term(factor_activation, factor, "mlp.by_factor") * open_))
