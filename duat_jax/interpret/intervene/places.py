"""Places inside a model whose values can be changed: neurons, heads, or a stream."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

from duat_jax.interpret.intervene.changes import SCALED, SET, STEERED, Change, Where, indices, some
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.layout import UnitLayout
from duat_jax.models.units import heads_of, neurons_of, streams_of
from duat_jax.models.validation import whole_number


@dataclass(frozen=True, eq=False)
class Place(ABC):
    """Values inside a model that can be changed; each method returns a `Change`.

    What is given is a number, or an array that broadcasts to the values of the tokens and units that are named:
    `[tokens, neurons]`, `[tokens, heads, head_features]`, or of a stream `[tokens, features]`. What is set or added can
    also be a source, which computes it by the model: `duat.edits.FromInput`, `SteeringVector`, `MeanEmbedding` or
    `HeadMove`.
    """

    def set(self, value: Any) -> Change:
        """Put other values in their place: `m ↦ v`.

        Args:
            value: `v`, numbers or a source.
        """
        return Change(self, SET, 0, value, value)

    def scale(self, factor: Any) -> Change:
        """Multiply them: `m ↦ s m`.

        Args:
            factor: `s`, numbers.
        """
        return Change(self, SCALED, factor, 0, factor)

    def steer(self, direction: Any) -> Change:
        """Add a direction: `m ↦ m + d`.

        Args:
            direction: `d`, numbers or a source.
        """
        return Change(self, STEERED, 1, direction, direction)

    @abstractmethod
    def _where(self, config: Config, layers: int, problems: list[str]) -> Where | None:
        """Return where it is, or nothing where there is a problem."""


@final
@dataclass(frozen=True, eq=False)
class Neurons(Place):
    """Neurons of one layer's MLP, as its output matrix reads them: `σ(z)`, or with a gate `σ(g) u`.

    Args:
        layer: the layer, from 0.
        neurons: one, or several of them; of experts, those of a token's first choice come first.
        tokens: one, or several of them, negative ones counted from the end; every token if absent.

    Example:
        >>> import duat_jax as duat
        >>> duat.intervene(duat.load(), [5, 6, 7], Neurons(3, [17, 20], tokens=-1).set(0)).effects[0].change
        "layer 3, neurons 17, 20, token 2, '7': set to 0"
    """

    layer: Any
    neurons: Any
    tokens: Any = None

    def _where(self, config: Config, layers: int, problems: list[str]) -> Where | None:
        if (layer := _layer(self.layer, layers, problems)) is None:
            return None
        return _in_layer(neurons_of(config, layer), layer, "neuron", self.neurons, problems)


@final
@dataclass(frozen=True, eq=False)
class Heads(Place):
    """Attention heads of one layer, as its output matrix reads them: what each mixes of the tokens' values.

    Args:
        layer: the layer, from 0.
        heads: one, or several of them.
        tokens: to which they carry, one or several, negative ones counted from the end; every token if absent.

    Example:
        >>> import duat_jax as duat
        >>> duat.intervene(duat.load(), [5, 6, 7], Heads(2, 0).scale(0.5)).effects[0].change
        'layer 2, head 0, every token: scaled by 0.5'
    """

    layer: Any
    heads: Any
    tokens: Any = None

    def _where(self, config: Config, layers: int, problems: list[str]) -> Where | None:
        if (layer := _layer(self.layer, layers, problems)) is None:
            return None
        return _in_layer(heads_of(config, layer), layer, "head", self.heads, problems)


@final
@dataclass(frozen=True, eq=False)
class Stream(Place):
    """The residual stream between two layers.

    Args:
        layers: the number of layers before it, from 0 to all.
        tokens: one, or several of them, negative ones counted from the end; every token if absent.

    Example:
        >>> import duat_jax as duat
        >>> duat.intervene(duat.load(), [5, 6, 7], Stream(6, tokens=[1, 2]).scale(0)).effects[0].change
        'stream 6, tokens 1, 2: scaled by 0'
    """

    layers: Any
    tokens: Any = None

    def _where(self, config: Config, layers: int, problems: list[str]) -> Where | None:
        number = whole_number(self.layers)
        if number is None or not 0 <= number <= layers:
            problems.append(f"stream {quoted(self.layers)} isn't there before what is read: give 0 to {layers}")
            return None
        if not (streams := streams_of(config, number)):
            problems.append(
                f"stream {number} isn't known: its code has no sum that is the stream after layer {number - 1}"
            )
            return None
        return Where(streams[0].site, f"stream {number}", None, streams[0].shape)


def _in_layer(found: list[UnitLayout], layer: int, unit: str, given: Any, problems: list[str]) -> Where | None:
    if len(found) != 1:
        known = ", ".join(str(each.site.key) for each in found) or "none"
        problems.append(f"layer {layer} has no marks of its {unit}s alone, but {known}: change its stream")
        return None
    if (units := indices(given, unit, found[0].shape[0], problems)) is None:
        return None
    named = f"layer {layer}, {unit}{'s' if len(units) > 1 else ''} {some(units)}"
    return Where(found[0].site, named, units, found[0].shape)


def _layer(layer: Any, layers: int, problems: list[str]) -> int | None:
    number = whole_number(layer)
    if number is None or not 0 <= number < layers:
        problems.append(f"layer {quoted(layer)} is none of the {layers} before what is read, counted from 0")
        return None
    return number
