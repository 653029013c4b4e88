"""Linear layers, embedding and read-out that adapters can modify, by their names in the checkpoint."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.errors import InvalidInput
from duat_jax.models.config import Config
from duat_jax.models.families.tensor_map import AS_IT_IS, TRANSPOSED, Entry, Transform, parameter_at, part_at
from duat_jax.models.registry import family_of
from duat_jax.models.transformer import Transformer
from duat_jax.models.untied import untied, untied_config
from duat_jax.nn.linear import Linear

LISTED = 12
"""The largest number of kinds of layers that an error message lists."""
EMBEDDING, READ_OUT = TABLES = ("embedding.token", "head.unembedding")
"""The paths of the two matrices that may be one: that of the tokens and that of the outputs."""


class AdaptableLayer(NamedTuple):
    """A linear layer as stored in a checkpoint, with the corresponding layers of the model.

    Args:
        paths: the model's linear layers, such as `"stack.blocks.0.attention.query"`; several if they are stored as one
            tensor. For embedding and read-out the parameter itself.
        inputs: the input size.
        outputs: the output size of each of the model's layers.
        transform: the conversion from the stored kernel to the model's kernels.
        transposed: whether it is stored as `[outputs, inputs]`.
    """

    paths: tuple[str, ...]
    inputs: int
    outputs: tuple[int, ...]
    transform: Transform
    transposed: bool

    @property
    def stored_outputs(self) -> int:
        """Output size of the stored layer."""
        return _stored(self.transform, [(0, size) for size in self.outputs])[int(not self.transposed)]

    @property
    def is_router(self) -> bool:
        """Whether it chooses the experts of a mixture."""
        return self.paths[0].endswith(".mlp.router")

    def split(self, up: Float[Array, "rank outputs"]) -> list[Array]:
        """Split the matrix `B` of a stored layer's update into those of the model's layers."""
        shapes = [(len(up), size) for size in self.outputs]
        return [jnp.asarray(part) for part in self.transform.unpack([up.T if self.transposed else up], shapes)]


def _stored(transform: Transform, shapes: list[tuple[int, ...]]) -> tuple:
    (shape,) = transform.shapes(shapes)
    return tuple(shape)


def adaptable_layers(model: Transformer) -> dict[str, AdaptableLayer]:
    """Return every layer that can have an adapter, by its stored name without the model's prefix; tables last.

    Example:
        >>> import duat_jax as duat
        >>> place = adaptable_layers(duat.load())["h.0.attn.c_attn"]
        >>> place.paths[0], place.inputs, place.outputs
        ('stack.blocks.0.attention.query', 192, (192, 192, 192))
    """
    by_name, tables = {}, {}
    for entry in entries_of(model.config):
        if entry.parameters[0] in TABLES:
            tables[entry.names[0].removesuffix(".weight")] = _table(model, entry.parameters[0])
        if len(entry.names) > 1 or not all(path.endswith(".kernel") for path in entry.parameters):
            continue
        paths = tuple(path.removesuffix(".kernel") for path in entry.parameters)
        layers = [part_at(model, path) for path in paths]
        if not all(isinstance(layer, Linear) for layer in layers):
            continue
        inputs, outputs = layers[0].kernel.shape[0], tuple(layer.kernel.shape[1] for layer in layers)
        # A size of 0, which no axis has, tells the axes apart.
        stored = _stored(entry.transform, [(0, size) for size in outputs])
        if len(stored) == 2:  # a patch's kernel has more axes
            name = entry.names[0].removesuffix(".weight")
            by_name[name] = AdaptableLayer(paths, inputs, outputs, entry.transform, stored[1] == 0)
    return by_name | tables


def _table(model: Transformer, path: str) -> AdaptableLayer:
    """Return the embedding as a linear layer from tokens, or the read-out as one to outputs."""
    if path == EMBEDDING:
        tokens, features = part_at(model, path).shape
        return AdaptableLayer((path,), tokens, (features,), AS_IT_IS, False)
    return AdaptableLayer((path,), model.config.state_features, (model.config.head.outputs,), TRANSPOSED, True)


def entries_of(config: Config) -> list[Entry]:
    """Return a family's tensor map, with the read-out that a tied one becomes where an adapter changes it."""
    # Where embedding and read-out of a masked token are tied, no adapter of either is supported.
    table = family_of(config).tensor_map(config)
    if not config.head.tied:
        return table
    if config.head.kind != "next token":
        return [entry for entry in table if entry.parameters != (EMBEDDING,)]
    own = family_of(config).tensor_map(untied_config(config))
    return [*table, *(entry for entry in own if entry.parameters == (READ_OUT,))]


def shapes_of(model: Transformer) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all parameters that an adapter may replace, by their paths."""
    whole = jax.eval_shape(untied, model)  # a skeleton has no numbers to copy
    return {path: parameter_at(whole, path).shape for entry in entries_of(model.config) for path in entry.parameters}


def module_names(model: Transformer, modules: Iterable[str]) -> list[str]:
    """Return the stored names of the selected layers, or of all in blocks but routers, in the checkpoint's order."""
    known, modules = adaptable_layers(model), list(modules)
    if not modules:
        inside = {name: place for name, place in known.items() if place.paths[0].startswith("stack.")}
        return [name for name, place in inside.items() if not place.is_router]
    if absent := [module for module in modules if not any(_called(name, module) for name in known)]:
        kinds = dict.fromkeys(re.sub(r"^.*\.\d+\.", "", name) for name in known)
        raise InvalidInput(
            f"this {model.config.family} model has no linear layer {', '.join(map(repr, absent))}: choose"
            f" among {', '.join(list(kinds)[:LISTED])}"
        )
    return [name for name in known if any(_called(name, module) for module in modules)]


def _called(name: str, module: str) -> bool:
    return name == module or name.endswith(f".{module}")
