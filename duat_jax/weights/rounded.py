"""A model whose matrices are rounded to a few bits, some of them to more, within a budget."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.models.layer_parts import written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import computed_in
from duat_jax.weights.units import LAYERS, name_of, parameters_of

FEWEST, MOST, FINER = 2, 16, 8
"""The numbers of bits that there are, and that of matrices that are kept finer."""
BIAS = "bias"
"""The end of the name of a bias; those of several experts are one array of two axes."""


def rounded(model: Transformer, bits: int, finer: Iterable[str] = ()) -> Transformer:
    """Round every matrix of a model's layers to the nearest of a few numbers, output by output.

    Example:
        >>> import duat_jax as duat
        >>> kernel = rounded(duat.load(), 2).stack.blocks[0].mlp.input.kernel[...][:, 0]
        >>> len(set(kernel.tolist()))
        3
    """
    # ŵ_ij = s_j round(w_ij / s_j), s_j = max_i |w_ij| / (2^{b−1} − 1)
    # Embeddings, norms and biases stay as they are.
    if not FEWEST <= bits <= MOST:
        raise DuatError(f"bits is {bits}: give a number of bits from {FEWEST} to {MOST}")
    model = written_out(model)
    names, finer = sizes_of_matrices(model), set(finer)
    if absent := sorted(finer - names.keys()):
        raise DuatError(f"{', '.join(absent)}: no matrix of a layer has this name")

    def of_leaf(path: Any, leaf: Array) -> Array:
        name = name_of(path)
        return _rounded(leaf, max(bits, FINER) if name in finer else bits) if name in names else leaf

    result: Transformer = jax.tree_util.tree_map_with_path(of_leaf, model)
    return result


def sizes_of_matrices(model: Transformer) -> dict[str, int]:
    """Return the number of weights of every matrix of a model's layers, by its name."""
    parameters = parameters_of(model)
    return {
        name: leaf.size
        for name, leaf in parameters.items()
        if name.startswith(LAYERS) and leaf.ndim > 1 and not name.endswith(BIAS)
    }


def within_budget(scores: Mapping[str, float], sizes: Mapping[str, int], share: float) -> list[str]:
    """Return the matrices with the highest scores for each of their weights that fit into a budget, the best first.

    Example:
        >>> within_budget({"a": 3.0, "b": 8.0, "c": 1.0}, {"a": 1, "b": 4, "c": 1}, 0.4)
        ['a', 'c']
    """
    left, chosen = share * sum(sizes.values()), []
    for name in sorted(sizes, key=lambda name: (-scores[name] / sizes[name], name)):
        if sizes[name] <= left:
            left -= sizes[name]
            chosen.append(name)
    return chosen


def _rounded(kernel: Float[Array, "... inputs outputs"], bits: int) -> Float[Array, "... inputs outputs"]:
    levels, exact = 2 ** (bits - 1) - 1, kernel.astype(computed_in(kernel.dtype))
    largest = jnp.abs(exact).max(-2, keepdims=True)
    step = jnp.where(largest == 0, 1, largest) / levels
    return (jnp.round(exact / step) * step).astype(kernel.dtype)
