"""The error of the outputs of every matrix that is rounded, at the inputs of the original model."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.models.layer_parts import blocks, written_out
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import Biased, Linear, product
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds
from duat_jax.weights.units import LAYERS

SQUARES = "squares of "


class Shadowed(Biased):
    """A linear layer that also computes the squared norms of its outputs, and of their change with another matrix.

    Args:
        linear: the layer.
        other: the same layer with the other matrix.
        matrix: the name of its matrix.
    """

    def __init__(self, linear: Linear, other: Linear, matrix: str) -> None:
        self.name, self.bias, self.kernel, self.matrix = linear.name, linear.bias, linear.kernel, matrix
        self.other = other.kernel

    def multiply(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W`."""
        y = product(x, self.kernel[...])
        change = product(x, self.other[...]) - y
        marks.point(jnp.stack([(change**2).sum(), (y**2).sum()]), SQUARES + self.matrix)
        return y

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return `x W + b`."""
        return self.add_bias(self.multiply(x))


def _shadowed(part: nnx.Module, other: nnx.Module, name: str) -> nnx.Module:
    """Return a part of a layer with all its linear layers shadowed by those of another one."""
    for field, linear in list(vars(part).items()):
        if isinstance(linear, Linear):
            setattr(part, field, Shadowed(linear, getattr(other, field), f"{name}.{field}.kernel"))
    return part


@jax.jit
def squares_of_outputs(
    before: Transformer, after: Transformer, ids: Int[Array, "tokens"]
) -> dict[str, Float[Array, "2"]]:
    """Return of every matrix `‖X δ‖²` and `‖X W‖²`, at the inputs `X` that it has in the first model."""
    first, second = written_out(before), written_out(after)
    for i, (block, other) in enumerate(zip(blocks(first), blocks(second), strict=True)):
        for part in ("attention", "mlp"):
            _shadowed(getattr(block, part), getattr(other, part), f"{LAYERS}{i}.{part}")
    seen = record_kinds(first.output, first.embed(ids), (marks.POINT,)).seen
    named = {site.key.name: value for site, value in seen.items() if site.key.name.startswith(SQUARES)}
    return {name.removeprefix(SQUARES): value for name, value in named.items()}
