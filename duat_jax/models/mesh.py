"""The division of a model over a mesh of devices."""

import re
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from duat_jax.errors import DuatError
from duat_jax.models.config import Config
from duat_jax.models.layer_parts import attentions, scanned, written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import Attention
from duat_jax.nn.block import Block
from duat_jax.nn.scanned_stack import ScannedStack
from duat_jax.processes import put

TEXTS, MODEL = "texts", "model"
"""The axes of a mesh: texts are divided along one, heads, neurons and the vocabulary along the other."""

RULES: dict[str, tuple[str, P]] = {
    r"attention\.query\.kernel": ("heads", P(None, MODEL)),
    r"attention\.query\.bias": ("heads", P(MODEL)),
    r"attention\.(key|value)\.kernel": ("key and value heads", P(None, MODEL)),
    r"attention\.(key|value)\.bias": ("key and value heads", P(MODEL)),
    r"attention\.sinks": ("heads", P(MODEL)),
    r"attention\.output\.kernel": ("heads", P(MODEL, None)),
    r"mlp\.(input|factor)\.kernel": ("neurons", P(None, MODEL)),
    r"mlp\.(input|factor)\.bias": ("neurons", P(MODEL)),
    r"mlp\.output\.kernel": ("neurons", P(MODEL, None)),
    r"mlp\.(input|factor)": ("neurons", P(None, None, MODEL)),
    r"mlp\.(input|factor)_bias": ("neurons", P(None, MODEL)),
    r"mlp\.output": ("neurons", P(None, MODEL, None)),
    r"embedding\.token": ("vocabulary", P(MODEL, None)),
    r"head\.unembedding": ("outputs", P(MODEL, None)),
}
"""By the end of a parameter's path: what is divided, and which of its axes that is. Every other parameter, such as
norms and the biases of outputs, is on every device."""

REQUIRED = ("heads", "neurons")
"""The sizes that have to be divisible; keys, values and a vocabulary that aren't are whole on every device."""


def placement(config: Config, mesh: Mesh) -> Callable[[str], NamedSharding]:
    """Return where each parameter of a model is put.

    Example:
        >>> import jax, numpy as np
        >>> import duat_jax as duat
        >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("model",))
        >>> tuple(placement(duat.load_config(), mesh)("stack.blocks.0.mlp.output.kernel").spec)
        ('model', None)
    """
    if unknown := [name for name in mesh.axis_names if name not in (TEXTS, MODEL)]:
        raise DuatError(f"the mesh has an axis {unknown[0]!r}: name its axes {TEXTS!r}, {MODEL!r}, or both")
    # Axes that are explicit in types would have to be named in every operation.
    mesh = Mesh(mesh.devices, mesh.axis_names)
    shards = mesh.shape.get(MODEL, 1)
    sizes = [sizes_of(config, layer) for layer in range(config.layers)]
    required = [(each[what], what, layer) for layer, each in enumerate(sizes) for what in REQUIRED]
    undivided = [f"{size} {what} of layer {layer}" for size, what, layer in required if size % shards]
    if undivided:
        *counts, last = [count for count in range(1, shards) if not any(size % count for size, *_ in required)]
        choice = f"{', '.join(map(str, counts))} or {last}" if counts else str(last)
        raise DuatError(
            f"the {undivided[0]} can't be divided among the {shards} devices of the mesh's axis {MODEL!r}: give it"
            f" {choice}"
        )

    def place(parameter: str) -> NamedSharding:
        match = re.match(r"stack\.blocks\.(\d+)\.", parameter)
        layer = int(match[1]) if match else 0
        for pattern, (what, spec) in RULES.items():
            if MODEL in mesh.axis_names and re.search(rf"(?:^|\.){pattern}$", parameter):
                return NamedSharding(mesh, P() if sizes[layer][what] % shards else spec)
        return NamedSharding(mesh, P())

    return place


def divide_long_texts(model: Transformer, mesh: Mesh) -> None:
    """Let devices divide the tokens of long texts between parts, and loop over their own heads in attention."""
    for attention in attentions(model):
        if isinstance(attention, Attention):
            attention.shards = mesh.shape.get(MODEL, 1)
    for block in model.stack.blocks:
        if isinstance(block, Block) and MODEL in mesh.axis_names:
            block.tokens = NamedSharding(Mesh(mesh.devices, mesh.axis_names), P(MODEL))


def divide(model: Transformer, mesh: Mesh) -> Transformer:
    """Return a model that is divided over a mesh.

    Example:
        >>> import jax, numpy as np
        >>> import duat_jax as duat
        >>> mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("model",))
        >>> tuple(divide(duat.load(), mesh).stack.blocks[0].mlp.output.kernel[...].sharding.spec)
        ('model', None)
    """
    place, in_loop = placement(model.config, mesh), isinstance(model.stack, ScannedStack)

    def divided_parameter(path: tuple[Any, ...], parameter: nnx.Variable) -> nnx.Variable:
        sharding, value = place(".".join(map(str, path))), parameter.get_value()
        if isinstance(value, jax.ShapeDtypeStruct):
            return parameter.replace(jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding))
        return parameter.replace(put(value, sharding))

    structure, parameters = nnx.split(written_out(model))
    divided: Transformer = nnx.merge(structure, nnx.map_state(divided_parameter, parameters))
    divide_long_texts(divided, mesh)
    return scanned(divided) if in_loop else divided


def sizes_of(config: Config, layer: int) -> dict[str, int]:
    """Return the sizes of what is divided, of one layer."""
    block = config.blocks[layer]
    return {
        "heads": block.heads,
        "key and value heads": block.key_value_heads or block.heads,
        "neurons": block.neurons,
        "vocabulary": config.vocab,
        "outputs": config.head.outputs or config.vocab,
    }
