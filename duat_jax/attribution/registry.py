"""The registry of attribution methods: for every kind of units, the methods that score them."""

from duat_jax.attribution import masks, tokens, units
from duat_jax.attribution.method import AttributionMethod
from duat_jax.errors import InvalidInput
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config

METHODS: dict[str, dict[str, AttributionMethod]] = {
    "token": tokens.METHODS,
    "neuron": units.METHODS | masks.METHODS,
    "head": units.METHODS | masks.METHODS,
    "stream": {
        name: method for name, method in units.METHODS.items() if name != "integrated gradients, all layers together"
    },
}
"""For every kind of units, the methods that score them, by name: a token, or a neuron, a head or the residual stream at
a token of every layer."""


def method_of(config: Config, unit: str, name: str) -> AttributionMethod:
    """Return the method of a name that scores units of a kind."""
    if unit not in METHODS:
        raise InvalidInput(f"{quoted(unit)} is no kind of units: choose one of {', '.join(METHODS)}")
    known = tokens.supported(config) if unit == "token" else METHODS[unit]
    if name not in known:
        raise InvalidInput(f"no method {quoted(name)} scores {unit}s of this model: choose one of {'; '.join(known)}")
    if unit != "token" and config.marks is not None:
        raise InvalidInput(
            f"the {unit}s of a model that PyTorch's code computes are in no array of layers: attribute tokens, or"
            " contrast the two inputs"
        )
    if unit in ("neuron", "head"):
        sizes = {block.neurons if unit == "neuron" else block.heads for block in config.blocks}
        if len(sizes) > 1:
            counts = ", ".join(map(str, sorted(sizes)))
            raise InvalidInput(
                f"the model's layers have different numbers of {unit}s ({counts}), and scores are kept in one array:"
                " score tokens or streams, or contrast the two inputs"
            )
    return known[name]
