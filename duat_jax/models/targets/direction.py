"""Target: a direction in a residual stream."""

from dataclasses import dataclass, field
from typing import Any, final

import jax
import jax.numpy as jnp

from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.targets.base import ForwardPass, ReadByItself, Reading, Words, one_row, reading
from duat_jax.models.transformer import Transformer
from duat_jax.models.units import streams_of
from duat_jax.models.validation import Places, checked_position, checked_vector, whole_number
from duat_jax.nn.linear import PRECISION


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Direction(ReadByItself):
    """The projection on a direction, at any stream and position: `⟨v, x_p⟩`.

    Args:
        vector: the direction `v`, `[features]`.
        stream: the residual stream, by the number of layers before it, from 0 to all; the last hidden states if absent.
        position: the token `p` at which it is read; negative counts from the end.
    """

    vector: Any
    stream: int | None = field(default=None, metadata={"static": True})
    position: Any = -1

    def checked(self, config: Config, places: Places, problems: list[str]) -> "Direction":
        """Return the target with its arguments validated for a model.

        Args:
            config: the model's parts.
            places: the positions of the text.
            problems: the list to which every problem is added.
        """
        layers = None if self.stream is None else whole_number(self.stream)
        if self.stream is not None and (layers is None or not 0 <= layers <= config.layers):
            problems.append(
                f"stream {quoted(self.stream)} isn't one of the model's: give 0 (before the first layer) to"
                f" {config.layers} (after the last), or none for the last hidden states"
            )
            layers = None
        streams = [] if layers is None else streams_of(config, layers)
        if layers is not None and not streams:
            known = [number for number in range(config.layers + 1) if streams_of(config, number)]
            why = "each of the two streams has its own there" if config.streams else "no sum in the model's code is it"
            problems.append(
                f"the stream after layer {layers - 1} isn't known as one: {why}; give {', '.join(map(str, known))}, or"
                " none for the last hidden states"
            )
        if streams and not streams[0].stream:
            places = places._replace(encoder=0)  # a token of either text has its row there
        features = streams[0].shape[-1] if streams else config.state_features
        return Direction(
            checked_vector(features, self.vector, problems), layers, checked_position(self.position, places, problems)
        )

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        """Return the value and its covector.

        Args:
            model: the model.
            passed: its forward pass.
        """
        x = passed.at(self.stream)
        vector = jnp.asarray(self.vector).astype(x.dtype)
        return reading(jnp.dot(x[self.position], vector, precision=PRECISION), one_row(x, self.position, vector))

    def label(self, reading: Reading, words: Words) -> str:
        """Describe the target.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """
        place = "the last hidden states" if self.stream is None else f"the stream after {self.stream} layers"
        return f"a direction in {place} at {words.place(self.position)}"
