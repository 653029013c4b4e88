"""A stack of blocks, with the residual stream marked at every layer boundary."""

from collections.abc import Iterable
from typing import final

import jax
from flax import nnx
from jaxtyping import Array, Bool, Float

from duat_jax.nn.block import Part
from duat_jax.transform.marks import stream


@final
class Stack(nnx.Module):
    """Run blocks one after another: `x_i = block_i(x_{i−1})`.

    Args:
        blocks: the blocks, each `block(x, mask)`.
    """

    def __init__(self, blocks: Iterable[Part]) -> None:
        self.blocks = nnx.List(blocks)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens features"]:
        """Run the blocks.

        Args:
            x: the residual stream, `[..., tokens, features]`.
            mask: true for real tokens, `[..., tokens]`.
        """
        x = stream(x, "layer")
        for i, block in enumerate(self.blocks):
            with jax.named_scope(f"layers.{i}"):
                x = block(x, mask)
            x = stream(x, "layer")
        return x
