"""A dense layer on the vector of a text, `σ(W p + b)`, as sentence encoders have after their pooling."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from duat_jax.nn.linear import PRECISION
from duat_jax.nn.mlp import ACTIVATIONS

SLOPES = {"tanh": 1.0, "relu": 0.5, "gelu": 0.5, "silu": 0.5}
"""The activations, which are zero at zero, and their slopes there; of a kink the mean of both sides."""

IDENTITY = "identity"


class Pulled(NamedTuple):
    """A covector on a dense layer's values, as one on its input: `⟨u, σ(W p + b)⟩ = ⟨covector, p⟩ + constant`.

    Args:
        covector: on the layer's input, `[inputs]`.
        constant: the part of the bias.
    """

    covector: Float[Array, "inputs"]
    constant: Float[Array, ""]


@final
@dataclass(frozen=True)
class Dense:
    """A dense layer on a vector. Two layers are equal if their numbers are.

    Args:
        weight: the matrix `W`, `[outputs, inputs]`.
        bias: the bias `b`, `[outputs]`; none if absent.
        activation: `"identity"`, or a name in `SLOPES`.
    """

    weight: Float[np.ndarray, "outputs inputs"] = field(compare=False, repr=False)
    bias: Float[np.ndarray, "outputs"] | None = field(default=None, compare=False, repr=False)
    activation: str = IDENTITY
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        arrays = (self.weight, np.zeros(0) if self.bias is None else self.bias)
        content = b"".join(f"{array.dtype}{array.shape}".encode() + array.tobytes() for array in arrays)
        object.__setattr__(self, "digest", sha256(content).hexdigest())

    def label(self) -> str:
        """Return the layer in words."""
        outputs, inputs = self.weight.shape
        return f"dense layer from {inputs} to {outputs}" + (
            "" if self.activation == IDENTITY else f" with {self.activation}"
        )

    def __call__(self, p: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        """Return the layer's values.

        Args:
            p: its input, `[inputs]`.
        """
        z = self._before(p)
        return z if self.activation == IDENTITY else ACTIVATIONS[self.activation](z)

    def pull(self, u: Float[Array, "outputs"], p: Float[Array, "inputs"]) -> Pulled:
        """Return a covector on the layer's values as one on its input, with the ratios `σ(z) / z` held.

        Args:
            u: the covector on the values, `[outputs]`.
            p: the input, `[inputs]`.
        """
        z = self._before(p)
        if self.activation != IDENTITY:
            nonzero = jnp.where(z == 0, 1, z)
            ratio = ACTIVATIONS[self.activation](z) / nonzero
            u = u * jnp.where(z == 0, SLOPES[self.activation], ratio)
        bias = 0 if self.bias is None else jnp.dot(u, jnp.asarray(self.bias, u.dtype), precision=PRECISION)
        return Pulled(jnp.dot(u, jnp.asarray(self.weight, u.dtype), precision=PRECISION), jnp.asarray(bias, u.dtype))

    def _before(self, p: Float[Array, "inputs"]) -> Float[Array, "outputs"]:
        """Return what the activation takes."""
        z = jnp.dot(jnp.asarray(self.weight, p.dtype), p, precision=PRECISION)
        return z if self.bias is None else z + jnp.asarray(self.bias, z.dtype)
