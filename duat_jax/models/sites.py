"""The marks of a Transformer's layers, by name: attention, neurons, and the streams between layers."""

from duat_jax.nn import BlockConfig
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Site

PATTERN, QUERIES, KEYS, VALUES = "attention.pattern", "attention.queries", "attention.keys", "attention.values"
HEADS, NEURONS, STREAM = "attention.mixed", "mlp.neurons", "layer"


def heads(layer: int) -> Site:
    """Return the mark of what a layer's heads mix of the tokens' values, before the output map."""
    return Site(marks.POINT, Key((f"layers.{layer}",), HEADS, 0))


def neurons(layer: int) -> Site:
    """Return the mark of a layer's neurons, the input of the outer map: `σ(z)`, or with a gate `σ(g) u`."""
    return Site(marks.POINT, Key((f"layers.{layer}",), NEURONS, 0))


def stream(layers: int) -> Site:
    """Return the mark of a residual stream."""
    return Site(marks.STREAM, Key((), STREAM, layers))


def streams(layers: int) -> list[Site]:
    """Return the marks of the residual stream before the first layer and after every one."""
    return list(map(stream, range(layers + 1)))


def head_shape(block: BlockConfig) -> tuple[int, ...]:
    """Return the shape of what the heads mix for one token, `[heads, head_features]`."""
    return block.heads, block.head_features or block.features // block.heads


def neuron_shape(block: BlockConfig) -> tuple[int, ...]:
    """Return the shape of one token's neurons, of experts those that it chooses, `[neurons]`."""
    return (block.neurons * (block.chosen_experts or 1),)
