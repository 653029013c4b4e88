"""Differences between the routes, compared with the bounds of rounding."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.forms.closed_form import unroll
from duat_jax.forms.residual_term import ResidualTerm
from duat_jax.nn import ACTIVATIONS, Stack
from duat_jax.reference.blocks import residual_terms
from duat_jax.reference.dense import vec
from duat_jax.reference.recursions import Unrolled, unroll_terms
from duat_jax.verification.rounding_bound import rounding_bound
from duat_jax.verification.routes import (
    block_arrays,
    derived,
    forward,
    held_by_layer,
    recorded,
    recursive,
    symbolic_block,
)

_LARGEST = 8e9  # bytes of dense matrices above which the check is refused


class Difference(NamedTuple):
    """The difference between the symbolic form and one other route to the same numbers.

    Args:
        route: the other route.
        largest: the absolute difference that is largest relative to its tolerance, over all parts and layers.
        tolerance: the bound of rounding there, with `Σ|parts|` as the size of the summands.
        share: the difference divided by the tolerance.
    """

    route: str
    largest: float
    tolerance: float
    share: float

    @property
    def holds(self) -> bool:
        """Whether every difference is within its tolerance."""
        return self.share <= 1  # False for NaN


class Verification(NamedTuple):
    """The differences between the routes for one network.

    Args:
        name: the block type, or the model.
        depth: number of layers.
        differences: the difference from each other route.
    """

    name: str
    depth: int
    differences: tuple[Difference, ...]

    @property
    def holds(self) -> bool:
        """Whether all routes agree."""
        return all(difference.holds for difference in self.differences)


def _sizes(forms: list[Unrolled], terms: list[ResidualTerm], x0: Array) -> dict[str, float]:
    """Return `Σ|parts|` at its largest entry: `|P| |x_0| + |q| + Σ |C_j| |σ(·)|`, times `|W'_{j,2}|` inside a term."""
    largest: dict[str, float] = {}
    for i, form in enumerate(forms[1:], 1):
        before, layer = forms[i - 1], terms[i - 1]
        carried = sum(jnp.abs(t.outer) @ jnp.abs(t.activation) for t in form.terms)
        stream = jnp.abs(form.input) @ jnp.abs(x0) + jnp.abs(form.bias) + carried
        earlier = sum((jnp.abs(t.outer) @ jnp.abs(t.activation) for t in before.terms), jnp.abs(before.bias))
        pre_activation = jnp.abs(layer.inner) @ (jnp.abs(before.input) @ jnp.abs(x0) + earlier) + jnp.abs(
            layer.inner_bias
        )
        sizes = {"x": stream, "P x": stream, "q": stream, "UAT": stream, "B x": pre_activation, "c": pre_activation}
        largest |= {f"{part}/{i}": float(size.max()) for part, size in sizes.items()}
    output = largest[f"x/{len(terms)}"]
    return largest | {f"C s/{i}": output for i in range(1, len(forms))}


def _difference(
    route: str, symbolic: dict[str, Array], numeric: dict[str, Array], sizes: dict[str, float], depth: int
) -> Difference:
    errors = np.array([float(jnp.abs(symbolic[name] - value).max()) for name, value in numeric.items()])
    bounds = rounding_bound(symbolic[f"x/{depth}"].dtype, depth, np.array([sizes[name] for name in numeric]))
    shares = np.where(errors == 0, 0, errors / np.where(bounds == 0, np.nan, bounds))
    worst = int(np.argmax(shares))  # the first NaN, if there is one
    return Difference(route, float(errors[worst]), float(bounds[worst]), float(shares[worst]))


def _first(stack: Stack) -> Any:
    return stack.blocks[0]


def _check_size(stack: Stack, x: Array) -> None:
    tokens, features = x.shape
    neurons = _first(stack).mlp.input.kernel.shape[1]
    layers, width, hidden = len(stack.blocks), tokens * features, tokens * neurons
    # W'_{i,1}, P_i, W'_{i,2}, W'_{i,3} and B_i of every layer, and every C_j^{(i)}.
    entries = layers * width * (2 * width + 3 * hidden) + layers * (layers + 1) // 2 * width * hidden
    if (needed := entries * x.dtype.itemsize) > _LARGEST:
        raise DuatError(
            f"{layers} layers of {features} features, {neurons} neurons and {tokens} tokens are"
            f" {needed / 1e9:.0f} GB of dense matrices, and the limit is {_LARGEST / 1e9:.0f} GB: give fewer tokens"
        )


def verify(stack: Stack, x: Float[Array, "tokens features"], name: str) -> Verification:
    """Compare the symbolic form, evaluated with a network's own parameters, with every other route.

    The block's formula as written, and the closed form with the parameters derived from it, are evaluated with the
    weights and the held dynamics as dense matrices. The residual stream of every layer is compared with the plain
    forward pass, and every part of the form (`P_i x_0`, `q_i`, `UAT^R_i`, `B_j x_0`,
    `c_j` and `C_j σ(·)`) with the closed form by record and replay, and with the dense recursions.

    Args:
        stack: the blocks.
        x: their input, the residual stream, `[tokens, features]`.
        name: the name of the network.

    Raises:
        DuatError: if the dense matrices would be too large.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from flax import nnx
        >>> from duat_jax.nn import BLOCKS, make_stack
        >>> stack = make_stack(BLOCKS["parallel"](features=4, heads=2, neurons=8), layers=2, rngs=nnx.Rngs(0))
        >>> verify(stack, jax.random.normal(jax.random.key(1), (3, 4)), "parallel").holds
        True

    Source: Wang & Li, Eq. 20–34.
    """
    _check_size(stack, x)
    depth, activation = len(stack.blocks), _first(stack).mlp.activation
    form = unroll(stack, x)
    held = held_by_layer(form.dynamics, depth)
    terms = residual_terms(stack, held)
    forms = unroll_terms(terms, ACTIVATIONS[activation], vec(x))
    symbolic = derived(symbolic_block(_first(stack)), depth, block_arrays(stack, held, vec(x)), activation)
    sizes = _sizes(forms, terms, vec(x))
    routes: Iterable[tuple[str, dict[str, Array]]] = (
        ("forward pass", forward(form, stack, x)),
        ("closed form by record and replay", recorded(form, depth)),
        ("closed form by the recursions", recursive(forms, vec(x))),
    )
    return Verification(
        name, depth, tuple(_difference(route, symbolic, numeric, sizes, depth) for route, numeric in routes)
    )
