"""Places inside a model whose values can be edited: neurons, heads, or a stream."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from jaxtyping import Shaped

from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.layout import ENCODER, UnitLayout
from duat_jax.models.units import both_streams_of, heads_of, neurons_of
from duat_jax.models.validation import whole_number
from duat_jax.transform.editing import Edit

SHOWN = 4
"""The largest number of tokens or units that a message names."""


Marks = tuple[list[UnitLayout], str, tuple[int, ...] | None]
"""A mark, or one for each stream; what is edited there in words, and which units."""


class Selected(NamedTuple):
    """Selected values of one text at one mark: the place of a validated edit.

    Args:
        mark: the mark, and how its values lie.
        name: what is edited, in words, but for the tokens.
        units: which of a token's units: neurons or heads; absent of a stream, which has none.
        tokens: at which tokens.
        every: whether that is every token.
    """

    mark: UnitLayout
    name: str
    units: tuple[int, ...] | None
    tokens: tuple[int, ...]
    every: bool

    @property
    def entries(self) -> tuple[np.ndarray, ...]:
        """The index of these values in all values of the mark, `[tokens, *shape]`."""
        return np.ix_(self.tokens, *([] if self.units is None else [self.units]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of these values."""
        of_token = self.mark.shape if self.units is None else (len(self.units), *self.mark.shape[1:])
        return len(self.tokens), *of_token

    def overlaps(self, other: "Selected") -> bool:
        """Return whether a value is in both."""
        if self.mark.site != other.mark.site or set(self.tokens).isdisjoint(other.tokens):
            return False
        return self.units is None or not set(self.units).isdisjoint(other.units or ())


class Editable(ABC):
    """Values inside a model that can be edited; each method returns a `duat.edits.Edit`.

    What is given is a number, or an array that broadcasts to the values of the tokens and units that are named:
    `[tokens, neurons]`, `[tokens, heads, head_features]`, or of a stream `[tokens, features]`. What is set or added can
    also be a source, which computes it by the model: `duat.edits.FromInput`, `SteeringVector`, `MeanEmbedding` or
    `HeadMove`.
    """

    tokens: Any

    def set(self, value: Any) -> Edit:
        """Put other values in their place: `m ↦ v`.

        Args:
            value: `v`, numbers or a source.
        """
        return Edit(0, value, self)

    def scale(self, factor: Any) -> Edit:
        """Multiply them: `m ↦ s m`.

        Args:
            factor: `s`, numbers.
        """
        return Edit(factor, None, self)

    def steer(self, direction: Any) -> Edit:
        """Add a direction: `m ↦ m + d`.

        Args:
            direction: `d`, numbers or a source.
        """
        return Edit(None, direction, self)

    def _select(
        self, config: Config, real: Shaped[np.ndarray, "tokens"], layers: int, problems: list[str]
    ) -> Selected | None:
        """Return the values of a text's tokens, or nothing where there is a problem or the text is empty."""
        found, tokens, every = self._marks(config, layers, problems), len(real), self.tokens is None
        if found is None:
            return None
        layouts, name, units = found
        rows: tuple[int, ...] | None
        if isinstance(self.tokens, str) and self.tokens in config.streams:
            first = (real == ENCODER) == (self.tokens == config.streams[0])
            rows = tuple(np.flatnonzero(first).tolist())
        else:
            rows = None if every else _indices(self.tokens, "token", tokens, problems, least=-tokens)
        if not tokens or (rows is None and not every):
            return None
        of_each = [each.tokens(real) for each in layouts]
        chosen = of_each[0] if rows is None and len(layouts) == 1 else rows
        for layout, known in zip(layouts, of_each, strict=True):
            if chosen is not None and np.isin(chosen, known).all():
                return Selected(layout, name, units, tuple(map(int, chosen)), every)
        there = ", or at ".join(f"{known[0]} to {known[-1]}" for known in of_each)
        problems.append(f"{name} is at tokens {there}: name tokens of one, or {' or '.join(map(repr, config.streams))}")
        return None

    @abstractmethod
    def _marks(self, config: Config, layers: int, problems: list[str]) -> Marks | None:
        """Return the marks, their name in words and which units, or nothing where there is a problem."""


@final
@dataclass(frozen=True, eq=False)
class Neurons(Editable):
    """Neurons of one layer's MLP, as its output matrix reads them: `σ(z)`, or with a gate `σ(g) u`.

    Args:
        layer: the layer, from 0.
        neurons: one, or several of them; of experts, those of a token's first choice come first.
        tokens: one, or several of them, negative ones counted from the end; every token if absent. Of two
            streams also the name of one, such as `"decoder"` or `"image"`: its tokens.

    Example:
        >>> import duat_jax as duat
        >>> duat.intervene(duat.load(), "for i in", Neurons(3, [17, 20], tokens=-1).set(0)).effects[0].edit
        "layer 3, neurons 17, 20, token 2, ' in': set to 0"
    """

    layer: Any
    neurons: Any
    tokens: Any = None

    def _marks(self, config: Config, layers: int, problems: list[str]) -> Marks | None:
        return _in_layer(config, layers, self.layer, "neuron", self.neurons, problems)


@final
@dataclass(frozen=True, eq=False)
class Heads(Editable):
    """Attention heads of one layer, as its output matrix reads them: what each mixes of the tokens' values.

    Args:
        layer: the layer, from 0.
        heads: one, or several of them.
        tokens: to which they carry, one or several, negative ones counted from the end; every token if absent. Of two
            streams also the name of one, such as `"decoder"` or `"image"`: its tokens.

    Example:
        >>> import duat_jax as duat
        >>> duat.intervene(duat.load(), [5, 6, 7], Heads(2, 0).scale(0.5)).effects[0].edit
        'layer 2, head 0, every token: scaled by 0.5'
    """

    layer: Any
    heads: Any
    tokens: Any = None

    def _marks(self, config: Config, layers: int, problems: list[str]) -> Marks | None:
        return _in_layer(config, layers, self.layer, "head", self.heads, problems)


@final
@dataclass(frozen=True, eq=False)
class Stream(Editable):
    """The residual stream between two layers.

    Args:
        layers: the number of layers before it, from 0 to all.
        tokens: one, or several of them, negative ones counted from the end; every token if absent. Of two
            streams also the name of one, such as `"decoder"` or `"image"`: its tokens.

    Example:
        >>> import duat_jax as duat
        >>> duat.intervene(duat.load(), [5, 6, 7], Stream(6, tokens=[1, 2]).scale(0)).effects[0].edit
        'stream 6, tokens 1, 2: scaled by 0'
    """

    layers: Any
    tokens: Any = None

    def _marks(self, config: Config, layers: int, problems: list[str]) -> Marks | None:
        number = whole_number(self.layers)
        if number is None or not 0 <= number <= layers:
            problems.append(f"stream {quoted(self.layers)} isn't there before what is read: give 0 to {layers}")
            return None
        if not (streams := both_streams_of(config, number)):
            problems.append(
                f"stream {number} isn't known: its code has no sum that is the stream after layer {number - 1}"
            )
            return None
        return streams, f"stream {number}", None


def some(numbers: tuple[int, ...]) -> str:
    """Return the first of many numbers, in words."""
    return ", ".join(map(str, numbers[:SHOWN])) + (f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else "")


def _in_layer(config: Config, layers: int, layer: Any, unit: str, given: Any, problems: list[str]) -> Marks | None:
    """Return the mark of a layer's heads or neurons, its name in words and which units."""
    number = whole_number(layer)
    if number is None or not 0 <= number < layers:
        problems.append(f"layer {quoted(layer)} is none of the {layers} before what is read, counted from 0")
        return None
    marks = {"neuron": neurons_of, "head": heads_of}[unit](config, number)
    known = ", ".join(str(mark.site.key) for mark in marks) or "none"
    each = marks[0].shape[0] if marks else 0
    if not marks or any(mark.shape != marks[0].shape for mark in marks):
        problems.append(f"layer {number} has no marks of its {unit}s alone, but {known}: edit its stream")
        return None
    # Where a layer has several attentions, its heads are counted on, in the order in which they are computed.
    if (units := _indices(given, unit, each * len(marks), problems)) is None:
        return None
    if len(of_marks := {number // each for number in units}) > 1:
        problems.append(
            f"layer {number}: the {unit}s are of several marks, {known}, of {each} each: edit one at a time"
        )
        return None
    (which,) = of_marks
    label = f"layer {number}, {unit}{'s' if len(units) > 1 else ''} {some(units)}"
    return [marks[which]], label, tuple(number % each for number in units)


def _indices(given: Any, what: str, count: int, problems: list[str], *, least: int = 0) -> tuple[int, ...] | None:
    """Return which of several units are meant, or nothing where there is a problem or there are none."""
    if not count:
        return None
    try:
        numbers = [whole_number(each) for each in (given if np.ndim(given) or isinstance(given, range) else [given])]
    except ValueError:
        numbers = [None]
    if not numbers or any(number is None or not least <= number < count for number in numbers):
        problems.append(f"{what} {quoted(given)} is none of {count}: give {least} to {count - 1}, one or several")
        return None
    indices = tuple(number % count for number in numbers if number is not None)
    if len(set(indices)) < len(indices):
        problems.append(f"{what} {quoted(given)} names one twice: name each once")
        return None
    return indices
