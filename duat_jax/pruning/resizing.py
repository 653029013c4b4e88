"""Resizing of MLPs: fewer neurons, and biases where there were none."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from duat_jax.models import layer_parts
from duat_jax.models.transformer import Transformer
from duat_jax.nn.config import make_mlp
from duat_jax.nn.linear import Linear

Kept = Mapping[int, Bool[np.ndarray, "neurons"]]
"""Which neurons are kept, by pruned layer."""


def resized(model: Transformer, kept: Kept, *, bias: bool = False) -> Transformer:
    """Return a smaller model without the removed neurons.

    Args:
        model: the model; it stays as it is.
        kept: which neurons are kept, by pruned layer.
        bias: whether MLPs without biases get biases, initialised with zero.
    """
    smaller = layer_parts.written_out(model)
    parts = []
    for layer, (before, part) in enumerate(zip(layer_parts.mlps(model), model.config.blocks, strict=True)):
        stays = kept.get(layer, np.ones(part.neurons, bool))
        part = dataclasses.replace(part, neurons=int(stays.sum()), mlp_bias=part.mlp_bias or bias)
        layer_parts.blocks(smaller)[layer].mlp = after = make_mlp(part, before.output.kernel.dtype, None)
        for name in ("input", "factor", "output"):
            if not hasattr(before, name):
                continue
            new, old, outer = getattr(after, name), getattr(before, name), name == "output"
            new.kernel.set_value(old.kernel[...][stays] if outer else old.kernel[...][:, stays])
            if old.bias is not None:
                new.bias.set_value(old.bias[...] if outer else old.bias[...][stays])
        parts.append(part)
    smaller.config = dataclasses.replace(model.config, blocks=tuple(parts))
    return smaller


def rewrite(
    output: Linear, kernel: Float[np.ndarray, "neurons features"], added: Float[np.ndarray, "features"]
) -> None:
    """Replace the weights of an outer map in place, and add to its bias if it has one.

    Args:
        output: the map; it is modified.
        kernel: its new weights.
        added: the change of its bias.
    """
    dtype = output.kernel.dtype
    output.kernel.set_value(jnp.asarray(kernel, dtype))
    if output.bias is not None:
        output.bias.set_value(jnp.asarray(np.asarray(output.bias[...], np.float64) + added, dtype))
