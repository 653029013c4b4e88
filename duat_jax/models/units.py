"""The marks of the units of a model: heads, neurons and streams, by layer."""

from duat_jax.marking.program import MIXED
from duat_jax.marking.program import NEURONS as ACTIVATED
from duat_jax.marking.streams import CARRIED, streams_together
from duat_jax.models import sites
from duat_jax.models.config import Config
from duat_jax.models.layout import DECODER, UnitLayout
from duat_jax.transform import marks
from duat_jax.transform.keys import Site


def heads_of(config: Config, layer: int) -> list[UnitLayout]:
    """Return the marks of a layer's heads: one, or none that is known."""
    block = config.blocks[layer]
    if config.marks is None:
        return [_native(sites.heads(layer), sites.head_shape(block))]
    return [each for each in _in_layer(config, layer, MIXED) if each.shape[:-1] == (block.heads,)]


def neurons_of(config: Config, layer: int) -> list[UnitLayout]:
    """Return the marks of a layer's neurons: one in a native family, any number in a model by PyTorch's code."""
    if config.marks is None:
        return [_native(sites.neurons(layer), sites.neuron_shape(config.blocks[layer]))]
    return _in_layer(config, layer, ACTIVATED)


def streams_of(config: Config, layers: int) -> list[UnitLayout]:
    """Return the mark of the residual stream after some layers: one, or none that is known."""
    if config.marks is None:
        return [_native(sites.stream(layers), (config.features,))]
    streams = (each for each in config.marks if each.site.kind == marks.STREAM)
    return [each for each in streams if each.site.key.layer == (layers - 1 if layers else None)][-1:]


def both_streams_of(config: Config, layers: int) -> list[UnitLayout]:
    """Return the marks of all residual streams after some layers: of an encoder with a decoder one of each."""
    if streams := streams_of(config, layers):
        return streams
    points = {each.site.key: each for each in config.marks or () if each.site.kind == marks.POINT}
    together = streams_together(key for key in points if key.layer == layers - 1)
    return [points[key] for key in together[-1]] if together else []


def encoder_layers_of(config: Config) -> int:
    """Return the number of layers of the first of two streams, from which the second's are counted on; else 0."""
    if not config.streams:
        return 0
    own = (each.site.key for each in config.marks or () if each.stream == DECODER and each.site.key.name != CARRIED)
    return min(key.layer for key in own if key.layer is not None)


def _native(site: Site, shape: tuple[int, ...]) -> UnitLayout:
    return UnitLayout(site, 0, shape, shape)


def _in_layer(config: Config, layer: int, name: str) -> list[UnitLayout]:
    points = (each for each in config.marks or () if each.site.kind == marks.POINT)
    return [each for each in points if (each.site.key.layer, each.site.key.name) == (layer, name)]
