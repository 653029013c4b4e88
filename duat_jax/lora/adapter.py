"""Low-rank adapters, and models with adapters beside their kernels or merged into them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.lora.places import Place, module_names, places
from duat_jax.models.families.tensor_map import part_at
from duat_jax.models.layer_parts import written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION, Linear, alike, computed_in


class Adapter(NamedTuple):
    """The update of one stored linear layer, `ΔW = s A B`: `x W` becomes `x W + s (x A) B`.

    Args:
        down: `A`, `[inputs, rank]`.
        up: `B`, `[rank, outputs]`.
        scale: `s`, the factor of the product, in float32 at least.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, Eq. 3; Wang & Li, Eq. 17.
    """

    down: Float[Array, "inputs rank"]
    up: Float[Array, "rank outputs"]
    scale: Float[Array, ""]


Adapters = dict[str, Adapter]
"""Adapters by the stored names of their layers, without the model's prefix."""


def new_adapters(
    model: Transformer, modules: Iterable[str] = (), *, rank: int = 8, alpha: float = 16.0, seed: int = 0
) -> Adapters:
    """Return newly initialised adapters, which don't change the model: `A` is random, `B` is zero, `s = α / rank`.

    Args:
        model: a loaded model.
        modules: which layers, by the ends of their stored names, such as `"c_attn"`; all of the blocks if empty.
        rank: the rank of every update.
        alpha: `α`.
        seed: the seed of `A`, whose entries are uniform in `±1/√inputs`.

    Raises:
        BadText: naming every module that the model doesn't have.
        DuatError: if the rank isn't positive.

    Example:
        >>> import duat_jax as duat
        >>> adapters = new_adapters(duat.load(), ["c_attn"], rank=4)
        >>> adapters["h.0.attn.c_attn"].down.shape, adapters["h.0.attn.c_attn"].up.shape
        ((192, 4), (4, 576))
    """
    if rank < 1:
        raise DuatError(f"rank = {rank}: an adapter needs at least rank 1")
    names, known = module_names(model, modules), places(model)
    dtype = jax.tree.leaves(model)[0].dtype
    random = np.random.default_rng(seed)

    def new(place: Place) -> Adapter:
        bound = place.inputs**-0.5
        down = jnp.asarray(random.uniform(-bound, bound, (place.inputs, rank)), dtype)
        return Adapter(
            down, jnp.zeros((rank, place.stored_outputs), dtype), jnp.asarray(alpha / rank, computed_in(dtype))
        )

    return {name: new(known[name]) for name in names}


def scaled(adapters: Adapters, by: Any) -> Adapters:
    """Return adapters with their updates multiplied by factors.

    Args:
        adapters: the adapters.
        by: one factor for all adapters, or a mapping from names to factors.
    """
    factors = by if isinstance(by, Mapping) else dict.fromkeys(adapters, by)
    return {name: adapter._replace(scale=adapter.scale * factors[name]) for name, adapter in adapters.items()}


@final
class AdaptedLinear(nnx.Module):
    """Apply `y = x W + s (x A) B + b`: a linear layer with an adapter beside it.

    Args:
        base: the linear layer, `W` and `b`.
        down: `A`, `[inputs, rank]`.
        up: `B`, `[rank, outputs]`.
        scale: `s`.
    """

    def __init__(self, base: Linear, down: Array, up: Array, scale: Array) -> None:
        self.base = base
        self.down, self.up, self.scale = nnx.Param(down), nnx.Param(up), nnx.Param(scale)

    def multiply(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W + s (x A) B`.

        Args:
            x: `[..., inputs]`.
        """
        down = jnp.matmul(x, alike(self.down[...], x), precision=PRECISION)
        return self.base.multiply(x) + alike(self.scale[...], x) * jnp.matmul(
            down, alike(self.up[...], x), precision=PRECISION
        )

    def add_bias(self, y: Float[Array, "... outputs"]) -> Float[Array, "... outputs"]:
        """Return `y + b`, the bias marked as an offset.

        Args:
            y: `[..., outputs]`.
        """
        return self.base.add_bias(y)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W + s (x A) B + b`.

        Args:
            x: `[..., inputs]`.
        """
        return self.add_bias(self.multiply(x))


def adapt(model: Transformer, adapters: Adapters) -> Transformer:
    """Return a model with adapters beside its unchanged kernels; it can be differentiated with respect to the adapters.

    Args:
        model: the model.
        adapters: the adapters, from `new_adapters` or `load_adapters`.

    Raises:
        DuatError: naming every adapter that doesn't fit the model.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> adapted = adapt(model, new_adapters(model, ["c_attn", "c_fc"]))
        >>> adapted.stack.blocks[0].mlp.input.down.shape, model.stack.blocks[0].mlp.input.kernel.shape
        ((192, 8), (192, 768))
    """
    changed = written_out(model)
    for name, path, part in _parts(model, adapters):
        parent, _, attribute = path.rpartition(".")
        adapter = adapters[name]
        module = part_at(changed, parent)
        setattr(module, attribute, AdaptedLinear(getattr(module, attribute), adapter.down, part, adapter.scale))
    return changed


def merge(model: Transformer, adapters: Adapters) -> Transformer:
    """Return a model of the same shape with the adapters added to its kernels, `W + s A B`.

    Args:
        model: the model.
        adapters: the adapters, from `new_adapters` or `load_adapters`.

    Raises:
        DuatError: naming every adapter that doesn't fit the model.

    Source: Wang & Li, Eq. 17.
    """
    changed = written_out(model)
    for name, path, part in _parts(model, adapters):
        down, _, scale = adapters[name]
        kernel = part_at(changed, f"{path}.kernel")
        added = scale * jnp.matmul(alike(down, scale), alike(part, scale), precision=PRECISION)
        kernel.set_value((alike(kernel[...], scale) + added).astype(kernel.dtype))
    return changed


def _parts(model: Transformer, adapters: Adapters) -> list[tuple[str, str, Array]]:
    """Return the adapter's name, the layer's path and its part of `B`, for every adapted layer of the model."""
    known = places(model)
    problems = [f"{name} is no linear layer of this {model.config.family} model" for name in adapters.keys() - known]
    for name in adapters.keys() & known.keys():
        (inputs, rank), up = adapters[name].down.shape, adapters[name].up.shape
        wanted = known[name].inputs, known[name].stored_outputs
        if inputs != wanted[0] or up != (rank, wanted[1]):
            problems.append(
                f"{name}: A {[inputs, rank]} and B {list(up)} don't fit a layer from {wanted[0]} to {wanted[1]}"
            )
    if problems:
        raise DuatError("; ".join(sorted(problems)))
    return [
        (name, path, part)
        for name, adapter in adapters.items()
        for path, part in zip(known[name].paths, known[name].split(adapter.up), strict=True)
    ]


def parameters_of(adapters: Adapters) -> int:
    """Return the number of trained parameters.

    Args:
        adapters: the adapters.
    """
    return sum(int(np.prod(adapter.down.shape)) + int(np.prod(adapter.up.shape)) for adapter in adapters.values())
