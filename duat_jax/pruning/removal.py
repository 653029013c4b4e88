"""The papers' inequality, measured: what a set of terms adds to the output, and what running without them changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.errors import DuatError
from duat_jax.models.transformer import Transformer
from duat_jax.nn.stack import Stack
from duat_jax.pruning import places
from duat_jax.transform.query import replay
from duat_jax.transform.recording import record


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """The set `Λ₂` of terms that are removed.

    Args:
        neurons: of a layer, which neurons.
        heads: of a layer, which heads: each head's path through the attention.
        terms: layers whose whole term goes, `W_3 σ(·)`, while their linear path is kept, `W_1 x + b`.
        layers: layers of which nothing stays, their linear path removed too: `x_i = x_{i−1}`.
    """

    neurons: Mapping[int, Sequence[int]] = field(default_factory=dict)
    heads: Mapping[int, Sequence[int]] = field(default_factory=dict)
    terms: Sequence[int] = ()
    layers: Sequence[int] = ()

    def problems(self, model: Transformer) -> list[str]:
        """Return everything that a model doesn't have.

        Args:
            model: the model.
        """
        blocks, found = model.config.blocks, []
        for layer in sorted({*self.neurons, *self.heads, *self.terms, *self.layers}):
            if not 0 <= layer < len(blocks):
                found.append(f"there is no layer {layer}: the model has layers 0 to {len(blocks) - 1}")
                continue
            for what, of, count in (
                ("neuron", self.neurons, blocks[layer].neurons),
                ("head", self.heads, blocks[layer].heads),
            ):
                if wrong := [str(i) for i in of.get(layer, ()) if not 0 <= i < count]:
                    found.append(f"layer {layer} has no {what} {', '.join(wrong)}: it has 0 to {count - 1}")
        if not any((*self.neurons.values(), *self.heads.values(), self.terms, self.layers)):
            found.append("nothing is removed: name at least one neuron, head or layer")
        return found


@final
class _Through(nnx.Module):
    """A layer of which nothing is left: `x_i = x_{i−1}`."""

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        return x


def without(model: Transformer, terms: Terms) -> Transformer:
    """Return a model in which some terms add nothing, whose other terms have the marks that they had.

    Args:
        model: the model; it stays as it is.
        terms: which terms.

    Raises:
        DuatError: naming everything that the model doesn't have.
    """
    if problems := places.problems_of(model) + terms.problems(model):
        raise DuatError("; ".join(problems))
    rest = nnx.clone(model)
    for layer, (mlp, attention) in enumerate(zip(places.mlps(rest), places.attentions(rest), strict=True)):
        heads = model.config.blocks[layer].heads
        every = slice(None) if layer in terms.terms else np.array(terms.neurons.get(layer, ()), int)
        kernel = mlp.output.kernel
        kernel.set_value(kernel[...].at[every].set(0))
        kernel = attention.output.kernel
        by_head = kernel[...].reshape(heads, -1, kernel.shape[-1])
        by_head = by_head.at[np.array(terms.heads.get(layer, ()), int)].set(0)
        kernel.set_value(by_head.reshape(kernel.shape))
    if terms.layers:
        rest.stack = Stack(_Through() if i in terms.layers else block for i, block in enumerate(rest.stack.blocks))
    return rest


class Removal(NamedTuple):
    """One text's output with all terms, without some while every parameter is held, and without them run anew.

    Args:
        whole: the model's output, `[tokens, outputs]`.
        held: that of the model without the terms, every dynamic parameter and every activation as it was.
        anew: the same with everything computed from what is left: what the pruned model returns.
    """

    whole: Float[Array, "*batch tokens outputs"]
    held: Float[Array, "*batch tokens outputs"]
    anew: Float[Array, "*batch tokens outputs"]

    @property
    def terms(self) -> Float[Array, "*batch tokens outputs"]:
        """`Σ_{Λ₂}`, what the terms add to the output: the exact change where parameters are held."""
        return self.whole - self.held

    @property
    def change(self) -> Float[Array, "*batch tokens outputs"]:
        """What really changes where the terms aren't there: the pruned model's true error."""
        return self.whole - self.anew


@jax.jit
def removal(model: Transformer, rest: Transformer, ids: Int[Array, "*batch tokens"]) -> Removal:
    """Return what removed terms add to a text's output, and what the model returns without them.

    With `x_L = P x_0 + q + Σ_Λ C_j σ(B_j x_0 + c_j)`, `Λ₂` removed and every parameter held, the output changes by
    exactly `Σ_{Λ₂} C_j σ(B_j x_0 + c_j)`; the papers' inequality (Eq. 16) bounds the pruned model's error by its size.
    But patterns, norms and `c_j` move where the model is run without the terms: the true error stands beside the sum.

    Args:
        model: the model.
        rest: what is left of it: from `without`, or another model whose marks are among those of the first; the biases
            are its own, so that a mean which is folded into one counts.
        ids: the text's token ids, `[tokens]`; or of several texts.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> model = duat.load()
        >>> found = removal(model, without(model, Terms(neurons={3: [17, 20]})), jnp.array([5, 6, 7]))
        >>> found.terms.shape == found.change.shape == (3, 4096)
        True

    Source: Wang & Li, Eq. 13–16.
    """
    x = model.embed(ids)
    whole, left = record(model.output)(x), record(rest.output)(x)
    held = replay(rest.output, whole.dynamics._replace(offsets=left.dynamics.offsets))(x)
    return Removal(whole.value, held, left.value)
