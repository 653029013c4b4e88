"""What is explained: one number that a model computes, as a read-out of its residual stream.

A target says which covector `u` reads the number out of a stream `x` of a plain forward pass, `⟨u, x⟩`; whatever `u`
itself depends on, such as probabilities or a norm, is held at its value on this text.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places
from duat_jax.nn.stack import Stack


class ForwardPass(NamedTuple):
    """The plain forward pass of one text, which may be padded on the right.

    Args:
        real: true for real tokens, `[tokens]`.
        states: what is read out of: the last hidden states, prepared by the model's head, `[tokens, features]`.
        streams: the residual stream before layer `i`, by `i`, where it is asked for; the last one is after all layers.
    """

    real: Bool[Array, "tokens"]
    states: Float[Array, "tokens features"]
    streams: dict[int, Float[Array, "tokens features"]]

    def at(self, stream: int | None) -> Float[Array, "tokens features"]:
        """Return what a target reads.

        Args:
            stream: the number of layers before it; the states of the read-out if absent.
        """
        return self.states if stream is None else self.streams[stream]


def forward(
    model: Transformer,
    inputs: Any,
    real: Bool[Array, "tokens"],
    streams: tuple[int, ...] = (),
    segments: Int[Array, "tokens"] | None = None,
) -> ForwardPass:
    """Run a model plainly: nothing is recorded.

    Args:
        model: the model.
        inputs: token ids, `[tokens]`; or an image's pixels, `[channels, height, width]`.
        real: true for real tokens, `[tokens]`.
        streams: which residual streams are wanted, each by the number of layers before it.
        segments: of each token the segment, `[tokens]`; all of segment 0 if absent.
    """
    x = model.embed(inputs, segments)
    start, blocks = model.first(x), model.stack.blocks
    return ForwardPass(real, model.states(x, real), {i: Stack(blocks[:i])(start, real) for i in streams})


class Reading(NamedTuple):
    """A target on one text: `value = ⟨u, x⟩ + constant − entropy`.

    Args:
        value: the number itself, from the plain forward pass.
        readout: the covector `u` that reads it, `[tokens, features]`.
        constant: what is added to `⟨u, x⟩`: the bias of a read-out.
        output: which of the model's outputs it is about, a token or a class; -1 if none.
        entropy: of a log-probability, the entropy of the model's distribution, held as the distribution is.
    """

    value: Float[Array, ""]
    readout: Float[Array, "tokens features"]
    constant: Float[Array, ""]
    output: Int[Array, ""]
    entropy: Float[Array, ""] | None


@runtime_checkable
class Words(Protocol):
    """How a model's outputs, places and texts are called."""

    def output(self, output: int) -> str:
        """Return what one of the model's outputs is called, a token or a class.

        Args:
            output: its number.
        """

    def place(self, position: int) -> str:
        """Return where a token stands in the text, and what it says.

        Args:
            position: its index.
        """

    def text(self, ids: Any) -> str:
        """Return what a row of tokens says.

        Args:
            ids: their ids, `[tokens]`.
        """


FITTING = {
    "next token": "is no encoder: explain a target token, at a position, without another text",
    "masked token": "says the token at a mask: explain a target token, without another text",
    "classes": "says a class: explain a class, without position and another text",
    "hidden": "is an encoder and says no token: explain it against another text (--against TEXT), without target,"
    " contrast or position",
}
"""What a model with each kind of head can be asked."""


class Target(ABC):
    """One number that a model can be asked to explain.

    An implementation is a frozen dataclass; `reader` is a pytree, so that one compiled program reads many.
    """

    stream: int | None = None
    """The stream that is read, by the number of layers before it; the states of the read-out if absent."""
    position: Any = None
    """The token at which it is read, if it is one."""
    needs: ClassVar[tuple[str, ...] | None] = None
    """The kinds of head of which a model must have one."""

    def missing(self, config: Config) -> str | None:
        """Return why a model doesn't have this target, if it doesn't.

        Args:
            config: the model's parts.
        """
        kind = config.head.kind
        return None if self.needs is None or kind in self.needs else f"a {config.family} model {FITTING[kind]}"

    @abstractmethod
    def checked(self, config: Config, places: Places, problems: list[str]) -> "Target":
        """Return the same with whole numbers in the model's range.

        Args:
            config: the model's parts.
            places: where the text can be read.
            problems: where everything that is wrong is added.
        """

    def reader(self, run: Callable[[Any], tuple[Array, int]]) -> Any:
        """Return the pytree whose `read(model, passed)` is the reading.

        Args:
            run: returns the last hidden states of another text, `[padded_tokens, features]`, and its length.
        """
        return self

    @abstractmethod
    def label(self, reading: Reading, words: Words) -> str:
        """Return what is explained, in words.

        Args:
            reading: the target on this text.
            words: how its tokens are called.
        """


def one_row(x: Float[Array, "tokens features"], position: Any, u: Float[Array, "features"]) -> Array:
    """Return the covector that reads a direction at one position.

    Args:
        x: what it is a covector on.
        position: the token.
        u: the direction.
    """
    return jnp.zeros_like(x).at[position].set(u.astype(x.dtype))


def reading(value: Array, readout: Array, constant: Any = 0, output: Any = -1, entropy: Array | None = None) -> Reading:
    """Return a reading, its parts as arrays.

    Args:
        value: the number itself.
        readout: the covector that reads it.
        constant: what is added to what it reads.
        output: which of the model's outputs it is about, if any.
        entropy: what is subtracted, if it is a log-probability.
    """
    return Reading(value, readout, jnp.asarray(constant, value.dtype), jnp.asarray(output, jnp.int32), entropy)
