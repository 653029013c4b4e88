"""Low-rank adapters, and models with adapters beside their kernels or merged into them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.lora.adaptable_layers import READ_OUT, TABLES, AdaptableLayer, adaptable_layers, module_names, shapes_of
from duat_jax.lora.replacement import Replacement
from duat_jax.models.families.tensor_map import parameter_at, part_at
from duat_jax.models.layer_parts import written_out
from duat_jax.models.transformer import Transformer
from duat_jax.models.untied import untied
from duat_jax.nn.linear import PRECISION, Linear, alike, computed_in


class Adapter(NamedTuple):
    """The update of one stored linear layer, `ΔW = s A B`: `x W` becomes `x W + s (x A) B`.

    The token embedding is one from the vocabulary to the features, and the read-out one from the features to the
    outputs.

    Args:
        down: `A`, `[inputs, rank]`.
        up: `B`, `[rank, outputs]`.
        scale: `s`, the factor of the product, in float32 at least.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, Eq. 3; Wang & Li, Eq. 17.
    """

    down: Float[Array, "inputs rank"]
    up: Float[Array, "rank outputs"]
    scale: Float[Array, ""]

    @property
    def update(self) -> Array:
        """The update `s A B`, computed in the dtype of `s`, `[inputs, outputs]`."""
        down, up = (alike(matrix, self.scale) for matrix in (self.down, self.up))
        return self.scale * jnp.matmul(down, up, precision=PRECISION)

    @property
    def trained(self) -> tuple[Array, Array]:
        """The arrays that a training changes: `A` and `B`."""
        return self.down, self.up

    def with_trained(self, trained: tuple[Array, Array]) -> "Adapter":
        """Return an adapter of the same scale with other matrices.

        Args:
            trained: `A` and `B`.
        """
        return self._replace(down=trained[0], up=trained[1])

    @property
    def moved(self) -> Array:
        """The array that is moved from no change to the whole change: `B`."""
        return self.up

    def with_moved(self, moved: Array) -> "Adapter":
        """Return the adapter with another `B`.

        Args:
            moved: `B`.
        """
        return self._replace(up=moved)

    def without_effect(self, model: Transformer) -> "Adapter":
        """Return the adapter with `B = 0`.

        Args:
            model: the model.
        """
        return self._replace(up=jnp.zeros_like(self.up))


Adapters = dict[str, Adapter | Replacement]
"""Adapters by the stored names of their layers, without the model's prefix."""
AnyAdapters = Mapping[str, Adapter | Replacement]
"""Adapters of one kind or of both."""


def new_adapters(
    model: Transformer, modules: Iterable[str] = (), *, rank: int = 8, alpha: float = 16.0, seed: int = 0
) -> Adapters:
    """Return newly initialised adapters, which don't change the model: `A` is random, `B` is zero, `s = α / rank`.

    They are in float32 at least, also beside a model in half precision, whose digits are too few for a training.

    Args:
        model: a loaded model.
        modules: which layers, by the ends of their stored names, such as `"c_attn"`; if empty, all of the blocks but
            the routers of mixtures of experts, which PEFT takes for no linear layers.
        rank: the rank of every update.
        alpha: `α`.
        seed: the seed of `A`, whose entries are uniform in `±1/√inputs`.

    Raises:
        InvalidInput: naming every module that the model doesn't have.
        DuatError: if the rank isn't positive.

    Example:
        >>> import duat_jax as duat
        >>> adapters = new_adapters(duat.load(), ["c_attn"], rank=4)
        >>> adapters["h.0.attn.c_attn"].down.shape, adapters["h.0.attn.c_attn"].up.shape
        ((192, 4), (4, 576))
    """
    if rank < 1:
        raise DuatError(f"rank = {rank}: an adapter needs at least rank 1")
    names, known = module_names(model, modules), adaptable_layers(model)
    dtype = computed_in(jax.tree.leaves(model)[0].dtype)
    random = np.random.default_rng(seed)

    def new(place: AdaptableLayer) -> Adapter:
        bound = place.inputs**-0.5
        down = jnp.asarray(random.uniform(-bound, bound, (place.inputs, rank)), dtype)
        return Adapter(down, jnp.zeros((rank, place.stored_outputs), dtype), jnp.asarray(alpha / rank, dtype))

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
        """Return `x W + s (x A) B`."""
        down = jnp.matmul(x, alike(self.down[...], x), precision=PRECISION)
        return self.base.multiply(x) + alike(self.scale[...], x) * jnp.matmul(
            down, alike(self.up[...], x), precision=PRECISION
        )

    def add_bias(self, y: Float[Array, "... outputs"]) -> Float[Array, "... outputs"]:
        """Return `y + b`, the bias marked as an offset."""
        return self.base.add_bias(y)

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W + s (x A) B + b`."""
        return self.add_bias(self.multiply(x))


def adapt(model: Transformer, adapters: AnyAdapters) -> Transformer:
    """Return a model with adapters beside its unchanged kernels; it can be differentiated with respect to the adapters.

    Updates of the embedding and of the read-out are added to these. A read-out that is tied to the embedding becomes
    one of its own where an adapter changes either.

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
    changed, parts = _prepared(model, adapters)
    for path, adapter in parts:
        if path in TABLES:
            parameter_at(changed, path).set_value(_updated(changed, path, adapter))
        else:
            parent, _, attribute = path.rpartition(".")
            module = part_at(changed, parent)
            setattr(module, attribute, AdaptedLinear(getattr(module, attribute), *adapter))
    return changed


def merge(model: Transformer, adapters: AnyAdapters) -> Transformer:
    """Return a model with the adapters added to its weights, `W + s A B`, of the same shape.

    A read-out that is tied to the embedding becomes one of its own where an adapter changes either.

    Args:
        model: the model.
        adapters: the adapters, from `new_adapters` or `load_adapters`.

    Raises:
        DuatError: naming every adapter that doesn't fit the model.

    Source: Wang & Li, Eq. 17.
    """
    changed, parts = _prepared(model, adapters)
    for path, adapter in parts:
        place = path if path in TABLES else f"{path}.kernel"
        parameter = parameter_at(changed, place)
        parameter.set_value(_updated(changed, place, adapter).astype(parameter.dtype))
    return changed


def _updated(model: Transformer, path: str, adapter: Adapter) -> Array:
    """Return a parameter with an adapter's update added."""
    added = adapter.update
    return alike(parameter_at(model, path)[...], adapter.scale) + (added.T if path == READ_OUT else added)


def _prepared(model: Transformer, adapters: AnyAdapters) -> tuple[Transformer, list[tuple[str, Adapter]]]:
    """Return a copy of the model with all replacements, and the adapter of every layer by its path."""
    known = adaptable_layers(model)
    low_rank = {name: each for name, each in adapters.items() if isinstance(each, Adapter)}
    whole = {name: each for name, each in adapters.items() if isinstance(each, Replacement)}
    problems = [f"{name} is no linear layer of this {model.config.family} model" for name in low_rank.keys() - known]
    for name in low_rank.keys() & known.keys():
        (inputs, rank), up = low_rank[name].down.shape, low_rank[name].up.shape
        wanted = known[name].inputs, known[name].stored_outputs
        if inputs != wanted[0] or up != (rank, wanted[1]):
            problems.append(
                f"{name}: A {[inputs, rank]} and B {list(up)} don't fit a layer from {wanted[0]} to {wanted[1]}"
            )
    shapes = shapes_of(model) if whole else {}
    problems += [
        f"{name}: {path} of shape {list(value.shape)} is no parameter of this {model.config.family} model"
        for name, each in whole.items()
        for path, value in each.values.items()
        if shapes.get(path) != value.shape
    ]
    if problems:
        raise DuatError("; ".join(sorted(problems)))
    changed = written_out(model)
    if changes_table(model, adapters):
        changed = untied(changed)
    for each in whole.values():
        for path, value in each.mixed(changed).items():
            parameter_at(changed, path).set_value(value)
    return changed, [
        (path, adapter._replace(up=part))
        for name, adapter in low_rank.items()
        for path, part in zip(known[name].paths, known[name].split(adapter.up), strict=True)
    ]


def changes_table(model: Transformer, adapters: AnyAdapters) -> bool:
    """Return whether adapters change the token embedding or the read-out."""
    known = adaptable_layers(model)
    return any(
        path in TABLES
        for name, each in adapters.items()
        for path in (each.values if isinstance(each, Replacement) else known[name].paths)
    )


def parameters_of(adapters: Adapters) -> int:
    """Return the number of trained parameters."""
    return sum(leaf.size for adapter in adapters.values() for leaf in jax.tree.leaves(adapter.trained))
