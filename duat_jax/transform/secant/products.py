"""The change of a product of all entries, or of every prefix."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jaxtyping import Array

from duat_jax.transform.primitives import apply
from duat_jax.transform.secant.changed_value import ChangedValue, finite, wide
from duat_jax.transform.secant.quadrature import gauss_legendre


def product_change(equation: core.JaxprEqn, flow: ChangedValue, factors: int) -> Array:
    """Return the change of products by Shapley's value, which is the same for factors that are equal at both inputs."""
    # On the line `z(t) = t x + (1 − t) y` between the inputs the mean of the derivative is Shapley's value, since a
    # product is linear in every factor:
    # Δ(Π z) = Σ_i ∫₀¹ Π_{j≠i} z_j(t) dt Δz_i
    # The integrand is a polynomial, and Gauss–Legendre quadrature of `⌈n/2⌉` points is exact for `n` factors.
    dtype = wide(flow.change.dtype)
    x, y, change = (array.astype(dtype) for array in (*flow.both, flow.change))

    def products(z: Array) -> Array:
        return apply(equation, [z])[0]

    # The derivative at every node is computed again in the transpose instead of being kept.
    @jax.checkpoint
    def step(total: Array, node: Any) -> tuple[Array, None]:
        of_x, of_y, weight = node
        derivative = jax.jvp(products, (finite(of_x * x + of_y * y),), (change,))[1]
        return total + weight * derivative, None

    nodes = tuple(jnp.array(numbers, dtype) for numbers in gauss_legendre((factors + 1) // 2))
    zero = jnp.zeros(jax.eval_shape(products, change).shape, dtype)
    return lax.scan(step, zero, nodes)[0]
