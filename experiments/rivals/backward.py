"""GIM and DeepLIFT: scores from another way back through a network than the gradient's.

They aren't rules for any number that a model computes, but methods for the logit difference on a pair of texts.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.attribution.unit_values import Scores
from duat_jax.inputs.prompts import difference_at
from duat_jax.models.transformer import Transformer
from duat_jax.nn.mlp import ACTIVATIONS
from experiments.rivals import network
from experiments.rivals.network import PLAIN, Rules

TEMPERATURE = 2.0


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax_at(x: Array, temperature: float) -> Array:
    """Return the softmax, whose way back is that of the pattern at a higher temperature."""
    # `dx = p ⊙ (dy - ⟨p, dy⟩)` with `p = softmax(x / temperature)`, without the constant factor `1 / temperature`, as
    # in the code of GIM's authors.
    return jax.nn.softmax(x)


def _softmax_back(temperature: float, x: Array, dy: Array) -> tuple[Array]:
    p = jax.nn.softmax(x / temperature)
    return (p * (dy - (p * dy).sum(-1, keepdims=True)),)


softmax_at.defvjp(lambda x, temperature: (jax.nn.softmax(x), x), _softmax_back)


def _divided(product: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return a product each of whose two factors gets half of its gradient."""

    def divided(a: Array, b: Array) -> Array:
        value = product(a, b)
        return jax.lax.stop_gradient(value / 2) + value / 2

    return divided


def _held_scale(x: Array, epsilon: float) -> Array:
    return jax.lax.stop_gradient(network.scale(x, epsilon))


def gim_rules(temperature: float, *, held: bool = True, divided: bool = True) -> Rules:
    """Return the rules of GIM."""
    rules = PLAIN._replace(softmax=partial(softmax_at, temperature=temperature))
    if held:
        rules = rules._replace(scale=_held_scale)
    if divided:
        rules = rules._replace(
            scores=_divided(network.scores), mixed=_divided(network.mixed), gated=_divided(jnp.multiply)
        )
    return rules


def with_rules(rules: Rules) -> Callable[[Transformer, Array, Array, Array, Array], Scores]:
    """Return the method `∇ Δ`, with the gradient of given rules at the clean text."""

    def method(model: Transformer, clean: Array, corrupted: Array, right: Array, wrong: Array) -> Scores:
        x, y = model.embed(clean), model.embed(corrupted)
        nothing = network.nothing(model, x)

        def number(added: Any) -> tuple[Array, Any]:
            states, values = network.run(model, rules, x, added)
            return difference_at(model, states[-1], right, wrong), values

        gradient, values = jax.grad(number, has_aux=True)(nothing)
        reference = network.run(model, rules, y, nothing)[1]
        return network.of_units(gradient, jax.tree.map(jnp.subtract, values, reference))

    return method


gim = with_rules(gim_rules(TEMPERATURE))
"""GIM: the softmax of attention back at a temperature of 2, norms held, and the products of attention and of gated MLPs
divided: queries and keys get a quarter of their gradient, values and the factors of gated MLPs a half.

Source: Edin et al., "GIM: Improved Interpretability for Large Language Models", 2025 (arXiv 2505.17630), as their
experiments run it (`JoakimEdin/gim`) and their package does (`corticph/gim`, after version 0.1.4).
"""


def rescaled(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return an elementwise function of two rows, whose way back is the first row's, times `Δy / Δx`."""
    # Where the rows are nearly equal it is the slope at their midpoint.

    def back(z: Array, ct: Array) -> tuple[Array]:
        middle, change = z.mean(0), z[0] - z[1]
        near = jnp.abs(change) <= jnp.sqrt(jnp.finfo(z.dtype).eps) * (1e-3 + jnp.abs(middle))
        slope = jax.jvp(fn, (middle,), (jnp.ones_like(middle),))[1]
        y = fn(z)
        multiplier = jnp.where(near, slope, (y[0] - y[1]) / jnp.where(near, 1, change))
        return (jnp.stack([ct[0] * multiplier, jnp.zeros_like(middle)]),)

    wrapped = jax.custom_vjp(fn)
    wrapped.defvjp(lambda z: (fn(z), z), back)
    return wrapped


def between(product: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Return a product on two rows, in whose way back each factor is the mean of its rows."""
    # What both factors' changes do together is thereby divided evenly, as in the first version of DeepLIFT.

    def back(factors: tuple[Array, Array], ct: Array) -> tuple[Array, Array]:
        parts = jax.vjp(product, *(factor.mean(0) for factor in factors))[1](ct[0])
        a, b = (jnp.stack([part, jnp.zeros_like(part)]) for part in parts)
        return a, b

    wrapped = jax.custom_vjp(product)
    wrapped.defvjp(lambda a, b: (product(a, b), (a, b)), back)
    return wrapped


_product = between(jnp.multiply)
_reciprocal = rescaled(jnp.reciprocal)


def _scale(x: Array, epsilon: float) -> Array:
    return rescaled(lambda v: jax.lax.rsqrt(v + epsilon))(rescaled(jnp.square)(x).mean(-1, keepdims=True))


def _softmax(x: Array) -> Array:
    """Return the softmax in its parts: exponentials, their sum, its reciprocal and a product."""
    # Both rows are shifted by one constant, so that the shift has no part in their difference.
    powers = rescaled(jnp.exp)(x - jax.lax.stop_gradient(x.max((0, -1), keepdims=True)))
    return _product(powers, _reciprocal(powers.sum(-1, keepdims=True)))


DEEPLIFT = Rules(
    cache(lambda name: rescaled(ACTIVATIONS[name])),
    _scale,
    _softmax,
    between(network.scores),
    between(network.mixed),
    _product,
    _product,
)
"""The rescale rule at every elementwise function, and products divided evenly."""


def multipliers(
    model: Transformer, clean: Array, corrupted: Array, right: Array, wrong: Array
) -> tuple[Any, Any, Array, Array]:
    """Return DeepLIFT's multipliers of neurons, heads and embeddings, and their changes."""
    pair = jnp.stack([model.embed(clean), model.embed(corrupted)])

    def number(added: Any, pair: Array) -> tuple[Array, Any]:
        states, values = network.run(model, DEEPLIFT, pair, added)
        return difference_at(model, states[0, -1], right, wrong), values

    (of_units, of_pair), values = jax.grad(number, argnums=(0, 1), has_aux=True)(network.nothing(model, pair), pair)
    first = jax.tree.map(lambda m: m[:, 0], of_units)
    return first, jax.tree.map(lambda v: v[:, 0] - v[:, 1], values), of_pair[0], pair[0] - pair[1]


def deeplift(model: Transformer, clean: Array, corrupted: Array, right: Array, wrong: Array) -> Scores:
    """Score units by DeepLIFT: the multiplier times the change."""
    coefficients, change, _, _ = multipliers(model, clean, corrupted, right, wrong)
    return network.of_units(coefficients, change)
