"""Removal of terms: their sum with every parameter held, and the true change when the model runs without them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.errors import DuatError
from duat_jax.models import layer_parts
from duat_jax.models.ids import require_ids
from duat_jax.models.transformer import Transformer
from duat_jax.nn.stack import Stack
from duat_jax.pruning import prunable_layers
from duat_jax.transform.query import replay
from duat_jax.transform.recording import record


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """The set `Λ₂` of terms that are removed.

    Args:
        neurons: indices of removed neurons, by layer.
        heads: indices of removed heads, by layer: each head's path through the attention.
        terms: layers whose whole term `W_3 σ(·)` is removed, while their linear path `W_1 x + b` is kept.
        layers: layers removed with their linear path: `x_i = x_{i−1}`.
    """

    neurons: Mapping[int, Sequence[int]] = field(default_factory=dict)
    heads: Mapping[int, Sequence[int]] = field(default_factory=dict)
    terms: Sequence[int] = ()
    layers: Sequence[int] = ()

    def problems(self, model: Transformer) -> list[str]:
        """Return an error message for every layer, neuron or head that a model doesn't have.

        Args:
            model: the model.
        """
        blocks, problems = model.config.blocks, []
        for layer in sorted({*self.neurons, *self.heads, *self.terms, *self.layers}):
            if not 0 <= layer < len(blocks):
                problems.append(f"there is no layer {layer}: the model has layers 0 to {len(blocks) - 1}")
                continue
            for kind, removed, count in (
                ("neuron", self.neurons, blocks[layer].neurons),
                ("head", self.heads, blocks[layer].heads),
            ):
                if wrong := [str(i) for i in removed.get(layer, ()) if not 0 <= i < count]:
                    problems.append(f"layer {layer} has no {kind} {', '.join(wrong)}: it has 0 to {count - 1}")
        if not any((*self.neurons.values(), *self.heads.values(), self.terms, self.layers)):
            problems.append("nothing is removed: name at least one neuron, head or layer")
        return problems


@final
class _Identity(nnx.Module):
    """A removed layer: `x_i = x_{i−1}`."""

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        return x


def without(model: Transformer, terms: Terms) -> Transformer:
    """Return a model with some terms set to zero, whose other terms keep their marks.

    Args:
        model: the model; it stays as it is.
        terms: the terms to remove.

    Raises:
        DuatError: naming every layer, neuron and head that the model doesn't have.
    """
    if problems := prunable_layers.problems_of(model) + terms.problems(model):
        raise DuatError("; ".join(problems))
    rest = layer_parts.written_out(model)
    for layer, (mlp, attention) in enumerate(zip(layer_parts.mlps(rest), layer_parts.attentions(rest), strict=True)):
        heads = model.config.blocks[layer].heads
        removed = slice(None) if layer in terms.terms else np.array(terms.neurons.get(layer, ()), int)
        kernel = mlp.output.kernel
        kernel.set_value(kernel[...].at[removed].set(0))
        kernel = attention.output.kernel
        by_head = kernel[...].reshape(heads, -1, kernel.shape[-1])
        by_head = by_head.at[np.array(terms.heads.get(layer, ()), int)].set(0)
        kernel.set_value(by_head.reshape(kernel.shape))
    if terms.layers:
        rest.stack = Stack(_Identity() if i in terms.layers else block for i, block in enumerate(rest.stack.blocks))
    return rest


class Removal(NamedTuple):
    """Outputs with all terms, without some terms and every parameter held, and of the model run without them.

    Args:
        whole: the model's output, `[tokens, outputs]`.
        held: that of the model without the terms, every dynamic parameter and every activation as it was.
        anew: the output of the pruned model, with everything computed anew.
    """

    whole: Float[Array, "*batch tokens outputs"]
    held: Float[Array, "*batch tokens outputs"]
    anew: Float[Array, "*batch tokens outputs"]

    @property
    def terms(self) -> Float[Array, "*batch tokens outputs"]:
        """`Σ_{Λ₂}`, the sum of the removed terms: the exact change with every parameter held."""
        return self.whole - self.held

    @property
    def change(self) -> Float[Array, "*batch tokens outputs"]:
        """The true error of the pruned model: the change with everything computed anew."""
        return self.whole - self.anew


def measure_removal(model: Transformer, rest: Transformer, ids: Int[Array, "*batch tokens"]) -> Removal:
    """Compute the sum of removed terms with every parameter held, and the output of the model run without them.

    With `x_L = P x_0 + q + Σ_Λ C_j σ(B_j x_0 + c_j)`, `Λ₂` removed and every parameter held, the output changes by
    exactly `Σ_{Λ₂} C_j σ(B_j x_0 + c_j)`; the papers' inequality (Eq. 16) bounds the pruned model's error by its size.
    But patterns, norms and `c_j` change when the model is run without the terms: the true error differs from the sum.

    Args:
        model: the model.
        rest: the model without the terms: from `without`, or another model whose marks are among those of the first;
            its biases are used, so that a mean folded into a bias counts.
        ids: the text's token ids, `[tokens]`; or of several texts.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> model = duat.load()
        >>> found = measure_removal(model, without(model, Terms(neurons={3: [17, 20]})), jnp.array([5, 6, 7]))
        >>> found.terms.shape == found.change.shape == (3, 4096)
        True

    Raises:
        InvalidInput: if an id is outside the model's vocabulary.

    Source: Wang & Li, Eq. 13–16.
    """
    require_ids(model.config, {"the text": ids})
    return _removal(model, rest, ids)


@jax.jit
def _removal(model: Transformer, rest: Transformer, ids: Int[Array, "*batch tokens"]) -> Removal:
    x = model.embed(ids)
    whole, left = record(model.output)(x), record(rest.output)(x)
    held = replay(rest.output, whole.dynamics._replace(offsets=left.dynamics.offsets))(x)
    return Removal(whole.value, held, left.value)
