"""Resizing of MLPs: fewer neurons, and biases where there were none."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Bool, Float

from duat_jax.models import layer_parts
from duat_jax.models.transformer import Transformer
from duat_jax.nn.config import make_mlp
from duat_jax.nn.linear import Linear
from duat_jax.nn.mlp import MLP, GatedMLP

Kept = Mapping[int, Bool[np.ndarray, "neurons"]]
"""Which neurons are kept, by pruned layer."""


def linear_maps(mlp: MLP | GatedMLP) -> dict[str, Linear]:
    """Return the linear maps of an MLP, by name: `"input"`, `"factor"` if it is gated, and `"output"`."""
    return {name: getattr(mlp, name) for name in ("input", "factor", "output") if hasattr(mlp, name)}


def resized(model: Transformer, kept: Kept) -> Transformer:
    """Return a smaller model without the removed neurons."""
    smaller = layer_parts.written_out(model)
    parts = []
    for layer, (before, part) in enumerate(zip(layer_parts.mlps(model), model.config.blocks, strict=True)):
        stays = kept.get(layer, np.ones(part.neurons, bool))
        part = dataclasses.replace(part, neurons=int(stays.sum()))
        layer_parts.blocks(smaller)[layer].mlp = after = make_mlp(part, before.output.kernel.dtype, None)
        for name, old in linear_maps(before).items():
            new, outer = getattr(after, name), name == "output"
            new.kernel.set_value(old.kernel[...][stays] if outer else old.kernel[...][:, stays])
            if old.bias is not None:
                new.bias.set_value(old.bias[...] if outer else old.bias[...][stays])
        parts.append(part)
    smaller.config = dataclasses.replace(model.config, blocks=tuple(parts))
    return smaller


def with_biases(model: Transformer) -> Transformer:
    """Return a model that computes the same and whose MLPs have biases: zeros where there were none."""
    copy = layer_parts.written_out(model)
    for mlp in layer_parts.mlps(copy):
        for linear in linear_maps(mlp).values():
            if linear.bias is None:
                linear.bias = nnx.data(nnx.Param(jnp.zeros(linear.kernel.shape[-1], linear.kernel.dtype)))
    blocks = tuple(dataclasses.replace(block, mlp_bias=True) for block in model.config.blocks)
    copy.config = dataclasses.replace(model.config, blocks=blocks)
    return copy


def rewrite(
    output: Linear, kernel: Float[np.ndarray, "neurons features"], added: Float[np.ndarray, "features"]
) -> None:
    """Replace the weights of an outer map in place, and add to its bias if it has one."""
    dtype = output.kernel.dtype
    output.kernel.set_value(jnp.asarray(kernel, dtype))
    if output.bias is not None:
        output.bias.set_value(jnp.asarray(np.asarray(output.bias[...], np.float64) + added, dtype))
