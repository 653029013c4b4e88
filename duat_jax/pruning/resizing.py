"""Models with fewer neurons, and models whose MLPs have biases."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Bool, Float

from duat_jax.models.transformer import Transformer
from duat_jax.nn.config import make_mlp
from duat_jax.nn.linear import Linear
from duat_jax.pruning import places

Kept = Mapping[int, Bool[np.ndarray, "neurons"]]
"""Of each layer that is pruned which neurons stay."""


def resized(model: Transformer, kept: Kept, *, bias: bool = False) -> Transformer:
    """Return a model in which neurons of some layers are no longer there.

    Args:
        model: the model; it stays as it is.
        kept: which neurons stay, of each layer in which some don't.
        bias: whether MLPs that have no biases get some, zero at first.
    """
    smaller = nnx.clone(model)
    parts = []
    for layer, (before, part) in enumerate(zip(places.mlps(model), model.config.blocks, strict=True)):
        stays = kept.get(layer, np.ones(part.neurons, bool))
        part = dataclasses.replace(part, neurons=int(stays.sum()), mlp_bias=part.mlp_bias or bias)
        places.blocks(smaller)[layer].mlp = after = make_mlp(part, before.output.kernel.dtype, None)
        for name in ("input", "factor", "output"):
            if not hasattr(before, name):
                continue
            into, of, outer = getattr(after, name), getattr(before, name), name == "output"
            into.kernel.set_value(of.kernel[...][stays] if outer else of.kernel[...][:, stays])
            if of.bias is not None:
                into.bias.set_value(of.bias[...] if outer else of.bias[...][stays])
        parts.append(part)
    smaller.config = dataclasses.replace(model.config, blocks=tuple(parts))
    return smaller


def rewrite(
    output: Linear, kernel: Float[np.ndarray, "neurons features"], added: Float[np.ndarray, "features"]
) -> None:
    """Put other weights into an outer map, and add to its bias if it has one.

    Args:
        output: the map; it is changed.
        kernel: its new weights.
        added: what is added to its bias.
    """
    dtype = output.kernel.dtype
    output.kernel.set_value(jnp.asarray(kernel, dtype))
    if output.bias is not None:
        output.bias.set_value(jnp.asarray(np.asarray(output.bias[...], np.float64) + added, dtype))
