"""The read-out: from the last hidden states to logits."""

from typing import Any, NamedTuple, final

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Shaped

from duat_jax.errors import DuatError
from duat_jax.models.config import Config
from duat_jax.nn.config import make_norm
from duat_jax.nn.linear import PRECISION, Linear, alike, in_blocks, initial
from duat_jax.nn.mlp import ACTIVATIONS
from duat_jax.nn.pattern import cap_ratio, soft_cap
from duat_jax.transform.marks import offset, term


@final
class ReadOut(nnx.Module):
    """Prepare the hidden states of every token and read logits from them: `l = r ⊙ (E h + b)`.

    A dense layer with its activation and a norm before the read-out is one more term. A read-out of one logit is linear
    in the prepared states, with the ratio `r` of a soft cap held.

    Args:
        config: the parts of the model.
        dtype: dtype of the parameters.
        rngs: source of the random initial weights; `None` gives zeros.
    """

    def __init__(self, config: Config, *, dtype: DTypeLike, rngs: nnx.Rngs | None) -> None:
        head, features, width = config.head, config.features, config.state_features
        self.config = head
        self.dense = (
            None
            if head.dense is None
            else Linear(features, width, "head.dense", bias=head.dense_bias, dtype=dtype, rngs=rngs)
        )
        self.norm = make_norm(config.blocks[0], "head.norm", dtype, width) if head.norm else None
        self.unembedding = initial((head.outputs, width), dtype, rngs) if head.outputs and not head.tied else None
        self.bias = nnx.Param(jnp.zeros(head.outputs, dtype)) if head.bias else None

    def states(
        self, x: Float[Array, "... tokens features"], mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens _"]:
        """Return the prepared states, from which logits are read."""
        if self.config.pool == "mean":
            weights = jnp.ones(x.shape[:-1], x.dtype) if mask is None else mask.astype(x.dtype)
            mean = jnp.einsum("...t,...tf->...f", weights / weights.sum(-1, keepdims=True), x, precision=PRECISION)
            x = jnp.broadcast_to(mean[..., None, :], x.shape)
        if self.dense is not None and self.config.dense is not None:
            x = term(ACTIVATIONS[self.config.dense], self.dense(x), "head")
        x = x if self.norm is None else self.norm(x)
        return x if self.config.scale == 1.0 else self.config.scale * x

    def pooled(
        self, states: Float[Array, "... tokens features"], mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "... features"]:
        """Return the state at which classes are read."""
        if mask is None:
            return states[..., -1 if self.config.pool == "last" else 0, :]
        last = jnp.where(mask, jnp.arange(mask.shape[-1]), 0).max(-1)
        place = last if self.config.pool == "last" else mask.argmax(-1)
        return jnp.take_along_axis(states, place[..., None, None], axis=-2)[..., 0, :]

    def logits(
        self, states: Float[Array, "... features"], embedding: Float[Array, "vocab width"] | None
    ) -> Float[Array, "... outputs"]:
        """Return the logits."""
        logits = jnp.matmul(states, alike(self.rows(embedding), states).T, precision=PRECISION)
        if self.bias is not None:
            logits = logits + offset(alike(self.bias[...], logits), "head.bias")
        return logits if self.config.cap is None else soft_cap(logits, self.config.cap, "head")

    def logits_of(
        self,
        states: Float[Array, "places features"],
        tokens: Int[Array, "*each places"],
        embedding: Float[Array, "vocab width"] | None,
    ) -> Float[Array, "*each places"]:
        """Return some of the logits, without computing the others."""
        rows = alike(self.rows(embedding)[tokens], states)
        logits = jnp.einsum("pf,...pf->...p", states, rows, precision=PRECISION)
        if self.bias is not None:
            logits = logits + offset(alike(self.bias[...], logits), "head.bias")[tokens]
        return logits if self.config.cap is None else soft_cap(logits, self.config.cap, "head")

    def at(
        self,
        state: Float[Array, "features"],
        embedding: Float[Array, "vocab width"] | None,
        outputs: Int[Array, "outputs"] | None = None,
    ) -> "Logits":
        """Return the logits of one state, all or some, with the parameters of their read-out."""
        wanted = slice(None) if outputs is None else outputs
        rows = alike(self.rows(embedding)[wanted], state)
        blocks = in_blocks(rows)
        states = jnp.broadcast_to(state, (len(blocks), len(state)))
        logits = jnp.einsum("bf,bvf->bv", states, blocks, precision=PRECISION).reshape(-1)[: len(rows)]
        bias = jnp.zeros_like(logits) if self.bias is None else alike(self.bias[wanted], state)
        logits = logits + bias
        ratio = jnp.ones_like(logits) if self.config.cap is None else cap_ratio(logits, self.config.cap)
        return Logits(logits * ratio, rows, ratio, ratio * bias)

    def rows(self, embedding: Float[Array, "vocab width"] | None) -> Float[Array, "outputs features"]:
        """Return the unembedding: the matrix whose rows read logits from a prepared state, before bias and cap."""
        if self.unembedding is not None:
            return self.unembedding[...]
        if embedding is None or not self.config.tied:
            raise DuatError("the model has no read-out: it returns its last hidden states")
        return embedding


class Logits(NamedTuple):
    """The logits at one position, with the parameters of their read-out: `l = ratios ⊙ (rows h) + constants`.

    Args:
        values: the logits, `[outputs]`.
        rows: the unembedding, `[outputs, features]`.
        ratios: the held ratios of their soft cap, `[outputs]`.
        constants: the contribution of their bias, `[outputs]`.
    """

    values: Float[Array, "outputs"]
    rows: Float[Array, "outputs features"]
    ratios: Float[Array, "outputs"]
    constants: Float[Array, "outputs"]

    def direction(self, output: Any) -> Float[Array, "features"]:
        """Return the direction that reads one logit.

        Args:
            output: its number.
        """
        return self.ratios[output] * self.rows[output]
