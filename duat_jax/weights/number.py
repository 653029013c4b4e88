"""The number of one text as a function of a model's weights."""

from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.pipeline import forward_from
from duat_jax.models.targets.base import Reader, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.transform.stored_program import stored_program

LOSS = "mean loss of the tokens after the first one, in nats"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TextNumber:
    """The number of one text, as a function of a model.

    Args:
        inputs: the padded text.
        reader: reads the number; the mean loss if absent.
        stream: the number of layers before the stream that is read; the states of the read-out if absent.
    """

    inputs: Inputs
    reader: Reader | None = None
    stream: int | None = field(default=None, metadata={"static": True})

    def read(self, model: Transformer) -> Reading:
        """Return the reading of a target."""
        passed = forward_from(model, self.inputs.embedded(model), jnp.asarray(self.inputs.real), self.stream)
        return cast(Reader, self.reader).read(model, passed)

    def __call__(self, model: Transformer) -> Float[Array, ""]:
        """Return the number."""
        if self.reader is not None:
            return self.read(model).value
        ids, real = self.inputs.given, self.inputs.real
        logs = jax.nn.log_softmax(model.output(self.inputs.embedded(model), jnp.asarray(real))[:-1])
        losses = -jnp.take_along_axis(logs, ids[1:, None], -1)[:, 0]
        counted = jnp.asarray(real[1:], losses.dtype)
        return (losses * counted).sum() / counted.sum()


@stored_program
def reading_of(model: Transformer, number: TextNumber) -> Reading:
    """Return a model's reading of a target."""
    return number.read(model)


@stored_program
def value_of(model: Transformer, number: TextNumber) -> Float[Array, ""]:
    """Return a model's number."""
    return number(model)
