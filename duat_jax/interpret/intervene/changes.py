"""Changes inside a model: neurons, heads or a stream, set, scaled, or steered along a direction."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float

from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.validation import whole_number
from duat_jax.transform import marks
from duat_jax.transform.keys import Key, Site

HEADS, NEURONS, STREAM = "attention.mixed", "mlp.neurons", "layer"
"""The marks at which heads, neurons and streams are changed."""

SHOWN = 4
"""The largest number of tokens or units that a message names."""


class Where(NamedTuple):
    """The place of values in a model.

    Args:
        site: the mark.
        name: what it is, in words.
        units: which of a token's units: neurons or heads; absent of a stream, which has none.
        shape: of all values of one token at this mark.
    """

    site: Site
    name: str
    units: tuple[int, ...] | None
    shape: tuple[int, ...]


class Applied(NamedTuple):
    """A change of one text's values, `m ↦ kept · m + added`; `kept` is 1 and `added` 0 elsewhere.

    Args:
        site: the mark.
        name: what is changed, in words, but for the tokens.
        how: what becomes of it, in words.
        tokens: at which tokens.
        units: which of their units; absent of a stream.
        every: whether every token is changed.
        here: which values are changed, `[tokens, features]`, or of heads `[tokens, heads, head_features]`.
        kept: the factor, of the same shape.
        added: the summand, of the same shape.
    """

    site: Site
    name: str
    how: str
    tokens: tuple[int, ...]
    units: tuple[int, ...] | None
    every: bool
    here: Bool[np.ndarray, "tokens *shape"]
    kept: Float[np.ndarray, "tokens *shape"]
    added: Float[np.ndarray, "tokens *shape"]


@dataclass(frozen=True, eq=False)
class Place(ABC):
    """Values inside a model that can be changed; each method returns a `Change`.

    What is given is a number, or an array that broadcasts to the values of the tokens and units that are named:
    `[tokens, neurons]`, `[tokens, heads, head_features]`, or of a stream `[tokens, features]`.
    """

    def set(self, value: Any) -> "Change":
        """Put other values in their place: `m ↦ v`.

        Args:
            value: `v`.
        """
        return Change(self, "set to", 0, value, value)

    def scale(self, factor: Any) -> "Change":
        """Multiply them: `m ↦ s m`.

        Args:
            factor: `s`.
        """
        return Change(self, "scaled by", factor, 0, factor)

    def steer(self, direction: Any) -> "Change":
        """Add a direction: `m ↦ m + d`.

        Args:
            direction: `d`.
        """
        return Change(self, "steered by", 1, direction, direction)

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
        block = config.blocks[layer]
        count = block.neurons * (block.chosen_experts or 1)
        return _in_layer(layer, NEURONS, "neuron", self.neurons, (count,), problems)


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
        block = config.blocks[layer]
        features = block.head_features or block.features // block.heads
        return _in_layer(layer, HEADS, "head", self.heads, (block.heads, features), problems)


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
        return Where(Site(marks.STREAM, Key((), STREAM, number)), f"stream {number}", None, (config.features,))


@final
@dataclass(frozen=True, eq=False)
class Change:
    """A change of values inside a model, `m ↦ kept · m + added`, made by a place.

    Args:
        place: the values.
        verb: what is done, in words.
        kept: the factor.
        added: the summand.
        given: which of the two was given.
    """

    place: Any
    verb: str
    kept: Any
    added: Any
    given: Any

    def applied(self, config: Config, tokens: int, layers: int, problems: list[str]) -> Applied | None:
        """Return the change of one text's values, or nothing where there is a problem.

        Args:
            config: the model's parts.
            tokens: the text's length; nothing is said of an empty one.
            layers: how many layers there are before what is read.
            problems: where everything that is wrong is added.
        """
        place = self.place._where(config, layers, problems)
        every_token = self.place.tokens is None
        rows = (
            tuple(range(tokens))
            if every_token
            else _indices(self.place.tokens, "token", tokens, problems, from_end=True)
        )
        if place is None or not rows:
            return None
        shape = (tokens, *place.shape)
        index = np.ix_(rows) if place.units is None else np.ix_(rows, place.units)
        values = _broadcast(self.given, np.zeros(shape)[index].shape, f"{place.name}: what it is {self.verb}", problems)
        if values is None:
            return None
        here, kept, added = np.zeros(shape, bool), np.ones(shape), np.zeros(shape)
        here[index] = True
        kept[index], added[index] = self.kept, self.added
        how = (
            f"{self.verb} {values:g}"
            if values.ndim == 0
            else f"{self.verb} values of size {np.linalg.norm(values):.3g}"
        )
        return Applied(place.site, place.name, how, rows, place.units, every_token, here, kept, added)


def _in_layer(
    layer: int, name: str, unit: str, given: Any, shape: tuple[int, ...], problems: list[str]
) -> Where | None:
    if (units := _indices(given, unit, shape[0], problems)) is None:
        return None
    named = f"layer {layer}, {unit}{'s' if len(units) > 1 else ''} {some(units)}"
    return Where(Site(marks.POINT, Key((f"layers.{layer}",), name, 0)), named, units, shape)


def some(numbers: tuple[int, ...]) -> str:
    """Return the first of many numbers, in words.

    Args:
        numbers: all of them.
    """
    return ", ".join(map(str, numbers[:SHOWN])) + (f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else "")


def _layer(layer: Any, layers: int, problems: list[str]) -> int | None:
    number = whole_number(layer)
    if number is None or not 0 <= number < layers:
        problems.append(f"layer {quoted(layer)} is none of the {layers} before what is read, counted from 0")
        return None
    return number


def _indices(
    given: Any, what: str, count: int, problems: list[str], *, from_end: bool = False
) -> tuple[int, ...] | None:
    """Return which of several units are meant, or nothing where there is a problem or there are none."""
    if not count:
        return None
    try:
        numbers = [
            whole_number(number) for number in (given if np.ndim(given) or isinstance(given, range) else [given])
        ]
    except ValueError:
        numbers = [None]
    least = -count if from_end else 0
    if not numbers or any(number is None or not least <= number < count for number in numbers):
        problems.append(f"{what} {quoted(given)} is none of {count}: give {least} to {count - 1}, one or several")
        return None
    indices = tuple(number % count for number in numbers if number is not None)
    if len(set(indices)) < len(indices):
        problems.append(f"{what} {quoted(given)} names one twice: name each once")
        return None
    return indices


def _broadcast(given: Any, shape: tuple[int, ...], what: str, problems: list[str]) -> np.ndarray | None:
    """Return a number or an array as it was given, or nothing where there is a problem."""
    try:
        values = np.asarray(given, float)
        np.broadcast_to(values, shape)
    except (TypeError, ValueError):
        problems.append(f"{what} must be a number, or numbers that broadcast to {list(shape)}, not {quoted(given)}")
        return None
    if not np.isfinite(values).all():
        problems.append(f"{what} isn't finite: give numbers that are")
        return None
    return values
