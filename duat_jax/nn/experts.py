"""A mixture of experts: gated MLPs, of which a router chooses a few for each token."""

from typing import final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from duat_jax.nn.linear import PRECISION, Linear, alike, initial
from duat_jax.nn.mlp import ACTIVATIONS, gated_term
from duat_jax.transform.marks import hold, offset


@final
class Experts(nnx.Module):
    """Apply `FFN(x) = Σ_{e ∈ top k} w_e(x) (σ(x W_{2,e}) ⊙ x W_{u,e}) W_{3,e}`, gated MLPs chosen by a router.

    The router's choice and its weights `w = softmax(x W_r)` are held; the term has the chosen experts' neurons one
    after another, `[tokens, chosen · neurons]`, and its outer weight carries `w`. Every expert is computed for every
    token, and the chosen outputs are selected.  With a limit `l` a gate is `σ(min(g, l))`, and a
    factor `1 + clip(u, −l, l)`.

    Args:
        features: width of the residual stream.
        neurons: number of hidden units of one expert.
        activation: a name in `ACTIVATIONS`.
        experts: number of experts.
        chosen: number of experts chosen for a token.
        normalised: whether the weights of the chosen experts are divided by their sum.
        bias: whether experts and router have biases.
        limit: the limit of gates, and of factors' size before one is added to them; none if absent.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.

    Source: Shazeer et al., "Outrageously Large Neural Networks", 2017, Eq. 1; Jiang et al., "Mixtral of Experts", 2024.
    """

    def __init__(
        self,
        features: int,
        neurons: int,
        activation: str,
        *,
        experts: int,
        chosen: int,
        normalised: bool = True,
        bias: bool = False,
        limit: float | None = None,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None,
    ) -> None:
        self.activation = activation
        self.chosen = chosen
        self.normalised = normalised
        self.limit = limit
        self.router = Linear(features, experts, "experts.router", bias=bias, dtype=dtype, rngs=rngs)
        self.input, self.factor = (initial((experts, features, neurons), dtype, rngs) for _ in range(2))
        self.output = initial((experts, neurons, features), dtype, rngs)
        sizes = (neurons, neurons, features)
        self.input_bias, self.factor_bias, self.output_bias = (
            nnx.Param(jnp.zeros((experts, size), dtype)) if bias else None for size in sizes
        )

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Apply the chosen experts to every token.

        Args:
            x: `[..., tokens, features]`.
        """
        weights, experts = jax.lax.top_k(jax.nn.softmax(self.router(x)), self.chosen)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdims=True)
        weights, experts = hold(weights, "experts.weight"), hold(experts, "experts.chosen")

        def chosen_layers(kernel: nnx.Param, bias: nnx.Param | None, name: str) -> Array:
            outputs = jnp.einsum("...tf,efn->...ten", x, alike(kernel[...], x), precision=PRECISION)
            chosen_outputs = jnp.take_along_axis(outputs, experts[..., None], axis=-2)
            chosen_outputs = chosen_outputs.reshape(*chosen_outputs.shape[:-2], -1)
            if bias is None:
                return chosen_outputs
            return chosen_outputs + offset(alike(bias[...], x)[experts].reshape(chosen_outputs.shape), name)

        routed = jax.nn.one_hot(experts, len(self.output), dtype=x.dtype) * weights[..., None]

        def outer(activated: Float[Array, "... tokens neurons"]) -> Float[Array, "... tokens features"]:
            by_choice = activated.reshape(*activated.shape[:-1], self.chosen, -1)
            by_expert = jnp.einsum("...tce,...tcn->...ten", routed, by_choice, precision=PRECISION)
            return jnp.einsum("...ten,enf->...tf", by_expert, alike(self.output[...], x), precision=PRECISION)

        gate = chosen_layers(self.input, self.input_bias, "mlp.input.bias")
        factor = chosen_layers(self.factor, self.factor_bias, "mlp.factor.bias")
        y = gated_term(self._gate, gate, self._factor(factor), outer)
        if self.output_bias is None:
            return y
        biases = jnp.matmul(routed.sum(-2), alike(self.output_bias[...], x), precision=PRECISION)
        return y + offset(biases, "mlp.output.bias")

    def _gate(self, gate: Array) -> Array:
        return ACTIVATIONS[self.activation](gate if self.limit is None else jnp.minimum(gate, self.limit))

    def _factor(self, factor: Array) -> Array:
        return factor if self.limit is None else 1 + jnp.clip(factor, -self.limit, self.limit)
