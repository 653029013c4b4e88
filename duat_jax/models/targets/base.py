"""Targets and their readings: one number that a model computes, as a read-out of its residual stream.

A target gives the covector `u` that reads the number from a stream `x` of a plain forward pass, `⟨u, x⟩`; everything
that `u` itself depends on, such as probabilities or a norm, is held at its value on this text.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from duat_jax.models.config import Config
from duat_jax.models.targets.description import NamedOutput, TargetDescription
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places


class ForwardPass(NamedTuple):
    """The plain forward pass of one text, which may be padded on the right.

    Args:
        real: true for real tokens, `[tokens]`.
        states: the states of the read-out: the last hidden states, prepared by the model's head, `[tokens, features]`.
        streams: the wanted residual streams before layer `i`, by `i`; the last one is after all layers.
    """

    real: Shaped[Array, "tokens"]
    states: Float[Array, "tokens features"]
    streams: dict[int, Float[Array, "tokens features"]]

    def at(self, stream: int | None) -> Float[Array, "tokens features"]:
        """Return the states that a target reads.

        Args:
            stream: the number of layers before it; the states of the read-out if absent.
        """
        return self.states if stream is None else self.streams[stream]


def forward(model: Transformer, inputs: Any, streams: tuple[int, ...] = ()) -> ForwardPass:
    """Run a model on `Inputs` without recording."""
    x, real = inputs.embedded(model), inputs.real
    return ForwardPass(real, model.states(x, real), {i: model.stream(x, i, real) for i in streams})


class Reading(NamedTuple):
    """The value of a target on one text, with its read-out: `value = ⟨u, x⟩ + constant − entropy`.

    Args:
        value: the number itself, from the plain forward pass.
        readout: the covector `u` that reads it, `[tokens, features]`.
        constant: the summand besides `⟨u, x⟩`: the bias of a read-out.
        output: the number of the output that is read, a token or a class; -1 if none.
        entropy: for a log-probability, the entropy of the model's distribution, held like the distribution.
    """

    value: Float[Array, ""]
    readout: Float[Array, "tokens features"]
    constant: Float[Array, ""]
    output: Int[Array, ""]
    entropy: Float[Array, ""] | None


class Reader(ABC):
    """The reading of one number from a forward pass: a pytree, so that one compiled program reads many."""

    position: Any = None
    """The token at which it reads, if there is one."""
    output: ClassVar[str | None] = None
    """The field that holds the number of the output, the most probable one if absent; `None` if there is none."""

    @abstractmethod
    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        """Return the value and its covector.

        Args:
            model: the model.
            passed: its forward pass.
        """

    def pinned(self, reading: Reading) -> "Reader":
        """Return the reader of the same output on another run, where that was the most probable one.

        Args:
            reading: the reading of the first run.
        """
        if self.output is None or getattr(self, self.output) is not None:
            return self
        return replace(cast(Any, self), **{self.output: reading.output})

    def at_position(self, position: Any) -> "Reader":
        """Return the reader of the same output at another token.

        Args:
            position: the token.
        """
        return replace(cast(Any, self), position=position)


@runtime_checkable
class Words(Protocol):
    """Names of a model's outputs, positions and texts."""

    def output(self, output: int) -> str:
        """Return the name of an output, a token or a class.

        Args:
            output: its number.
        """

    def place(self, position: int) -> str:
        """Return the position of a token, with its text.

        Args:
            position: its index.
        """

    def text(self, ids: Any) -> str:
        """Return the text of a row of tokens.

        Args:
            ids: their ids, `[tokens]`.
        """


FITTING = {
    "next token": "is no encoder: explain a target token, at a position, without another text",
    "masked token": "predicts the token at a mask: explain a target token, without another text",
    "classes": "predicts a class: explain a class, without position and another text",
    "hidden": "is an encoder and predicts no token: explain it against another text (--against TEXT), without target,"
    " contrast or position",
}
"""The targets of a model with each kind of head, as the end of a message."""


class Target(ABC):
    """A number of a model that can be explained, such as a token's logit; each class of targets is one kind of number.

    An implementation is a frozen dataclass; most are their own `Reader`.
    """

    stream: int | None = None
    """The stream that is read, by the number of layers before it; the states of the read-out if absent."""
    position: Any = None
    """The token at which it is read, if there is one."""
    needs: ClassVar[tuple[str, ...] | None] = None
    """The kinds of head that have this target; all if `None`."""

    @property
    def constant(self) -> str | None:
        """The name of the summand beside the read-out that isn't the head's bias, if there is one."""
        return None

    def missing(self, config: Config) -> str | None:
        """Return the reason why a model doesn't have this target, or `None`.

        Args:
            config: the model's parts.
        """
        kind = config.head.kind
        return None if self.needs is None or kind in self.needs else f"a {config.family} model {FITTING[kind]}"

    @abstractmethod
    def checked(self, config: Config, places: Places, problems: list[str]) -> "Target":
        """Return the target with its arguments validated for a model.

        Args:
            config: the model's parts.
            places: the positions of the text.
            problems: the list to which every problem is added.
        """

    @abstractmethod
    def reader(self, run: Callable[[Any], tuple[Array, int]]) -> Reader:
        """Return what reads the target from forward passes.

        Args:
            run: returns the last hidden states of another text, `[padded_tokens, features]`, and its length.
        """

    @abstractmethod
    def label(self, reading: Reading, words: Words) -> str:
        """Describe the target.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """

    def describe(self, reading: Reading, words: Words) -> TargetDescription:
        """Return the target in words, and the outputs, the position and the stream that it reads.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """

        def named(output: int | None) -> NamedOutput | None:
            return None if output is None else NamedOutput(output, words.output(output))

        def index(name: str) -> int | None:
            value = getattr(self, name, None)
            return None if value is None else int(value)

        output, against = int(reading.output), getattr(self, "against", None)
        return TargetDescription(
            headline=self.label(reading, words),
            kind=type(self).__name__,
            output=None if output < 0 else named(output),
            contrast=named(index("contrast")),
            against=None if against is None else words.text(against),
            position=index("position"),
            stream=self.stream,
        )


OneTarget = int | np.integer | Array | str | Target | None
"""A token, a class or a target; the most probable token or class if absent."""
ManyTargets = (
    Sequence[int | np.integer | Array | Target | None]
    | list[str]
    | list[str | None]
    | list[int | str | Target | None]
    | tuple[int | str | Target | None, ...]
)
"""Several targets; a string alone is one class."""


class ReadByItself(Target, Reader):
    """A target that is its own reader."""

    def reader(self, run: Callable[[Any], tuple[Array, int]]) -> Reader:
        """Return the target.

        Args:
            run: not used.
        """
        return self


def one_row(x: Float[Array, "tokens features"], position: Any, u: Float[Array, "features"]) -> Array:
    """Return the covector that reads a direction at one position."""
    return jnp.zeros_like(x).at[position].set(u.astype(x.dtype))


def reading(value: Array, readout: Array, constant: Any = 0, output: Any = -1, entropy: Array | None = None) -> Reading:
    """Build a reading from its parts."""
    return Reading(value, readout, jnp.asarray(constant, value.dtype), jnp.asarray(output, jnp.int32), entropy)
