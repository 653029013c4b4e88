"""Networks of equal size that read a prompt: two perceptrons, and five that mix tokens, each in another way."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

import duat_jax as duat
from duat_jax.nn import MLP, Attention, Block, Linear, RMSNorm, Stack
from duat_jax.nn.linear import PRECISION
from duat_jax.nn.mlp import ACTIVATIONS
from duat_jax.papers.networks import FixedAttention, with_random_weights
from experiments.generalization.tasks import Task

HEADS, REACH, DILATIONS = 4, 4, (5, 1)
"""The number of heads; how many tokens a convolution reads to either side, and their distance in each layer."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a network.

    Args:
        kind: a name in `KINDS`.
        norms: whether each attention and MLP reads its input normalised.
        layers: number of blocks.
        features: width of the residual stream.
        neurons: hidden units of a block's MLP.
    """

    kind: str
    norms: bool
    layers: int
    features: int
    neurons: int


@final
class LinearAttention(nnx.Module):
    """Attention without a softmax: token `i` reads token `j` with the held weight `q_i · k_j / n` of `n` tokens.

    Args:
        features: width of the residual stream.
        heads: number of heads.
    """

    def __init__(self, features: int, heads: int) -> None:
        self.heads = heads
        self.query, self.key, self.value, self.output = (
            Linear(features, features, f"attention.{name}", bias=False, rngs=None)
            for name in ("query", "key", "value", "output")
        )

    def __call__(
        self, x: Float[Array, "tokens features"], mask: Bool[Array, "tokens"] | None
    ) -> Float[Array, "tokens features"]:
        """Mix the tokens."""
        queries, keys, values = (part(x).reshape(len(x), self.heads, -1) for part in (self.query, self.key, self.value))
        scores = jnp.einsum("qhd,khd->hqk", queries, keys, precision=PRECISION) * queries.shape[-1] ** -0.5
        visible = jnp.ones(len(x), bool) if mask is None else mask
        pattern = duat.hold(jnp.where(visible, scores, 0) / visible.sum(), "attention.pattern")
        return self.output(_mixed(pattern, values))


@final
class Mean(nnx.Module):
    """Mix tokens by their mean: `mean_j(x_j) W_V W_O` at every token.

    Args:
        features: width of the residual stream.
    """

    def __init__(self, features: int) -> None:
        self.value, self.output = (
            Linear(features, features, f"attention.{name}", bias=False, rngs=None) for name in ("value", "output")
        )

    def __call__(
        self, x: Float[Array, "tokens features"], mask: Bool[Array, "tokens"] | None
    ) -> Float[Array, "tokens features"]:
        """Mix the tokens."""
        where = None if mask is None else mask[:, None]
        mean = self.value(x).mean(0, keepdims=True, where=where)
        return jnp.broadcast_to(self.output(mean), x.shape)


@final
class Convolution(nnx.Module):
    """Convolve along the tokens: `y_t = Σ_s x_{t+ds} W_s`, `|s| ≤ reach`, where absent tokens are zero.

    Args:
        features: width of the residual stream.
        reach: how many tokens it reads to either side.
        dilation: `d`, the distance between two of them.
    """

    def __init__(self, features: int, reach: int, dilation: int) -> None:
        self.reach, self.dilation = reach, dilation
        self.kernel = nnx.Param(jnp.zeros(((2 * reach + 1) * features, features)))

    def __call__(
        self, x: Float[Array, "tokens features"], mask: Bool[Array, "tokens"] | None
    ) -> Float[Array, "tokens features"]:
        """Mix the tokens."""
        present = x if mask is None else jnp.where(mask[:, None], x, 0)
        border, starts = self.reach * self.dilation, range(0, 2 * self.reach * self.dilation + 1, self.dilation)
        present = jnp.pad(present, ((border, border), (0, 0)))
        # One product with all shifts is faster on a CPU than the convolution of a small batch.
        shifts = jnp.concatenate([present[start : start + len(x)] for start in starts], -1)
        return jnp.matmul(shifts, self.kernel[...], precision=PRECISION)


def _mixed(pattern: Float[Array, "heads queries keys"], values: Float[Array, "keys heads _"]) -> Array:
    return jnp.einsum("hqk,khd->qhd", pattern, values, precision=PRECISION).reshape(len(values), -1)


def _alone(x: Array, mask: Array | None) -> Array:
    return x


@final
class OneLayer(nnx.Module):
    """Apply `y = W_3 σ(W_2 x + b_2) + W_1 x + b_3`, in which no input moves a parameter.

    Args:
        inputs: length of `x`.
        neurons: number of hidden units.
        outputs: length of `y`.
    """

    def __init__(self, inputs: int, neurons: int, outputs: int) -> None:
        self.skip = Linear(inputs, outputs, "skip", bias=False, rngs=None)
        self.input = Linear(inputs, neurons, "mlp.input", rngs=None)
        self.output = Linear(neurons, outputs, "mlp.output", rngs=None)

    def __call__(self, x: Float[Array, "1 inputs"], mask: Array | None = None) -> Float[Array, "1 outputs"]:
        """Return the output."""
        x = duat.stream(x, "layer")
        term = duat.term(ACTIVATIONS["gelu"], self.input(x), "mlp", outer=self.output.multiply)
        return duat.stream(self.skip(x) + self.output.add_bias(term), "layer")


@final
class Chain(nnx.Module):
    """One layer without residual path: `y = FFN(N₂(A(N₁ x)))`.

    Args:
        attention: mixes the tokens.
        mlp: acts on each token.
        norm_1: `N₁`; the identity if absent.
        norm_2: `N₂`; the identity if absent.
    """

    def __init__(self, attention: Any, mlp: MLP, norm_1: RMSNorm | None, norm_2: RMSNorm | None) -> None:
        self.attention, self.mlp, self.norm_1, self.norm_2 = attention, mlp, norm_1, norm_2

    def __call__(
        self, x: Float[Array, "tokens features"], mask: Bool[Array, "tokens"] | None
    ) -> Float[Array, "tokens features"]:
        """Return the layer's output."""
        y = self.attention(x if self.norm_1 is None else self.norm_1(x), mask)
        return self.mlp(y if self.norm_2 is None else self.norm_2(y))


WHOLE, FIXED, MOVING = (
    ("one layer",),
    ("perceptron", "mean", "fixed pattern", "convolution"),
    ("linear attention", "transformer"),
)
"""The network in which nothing moves with the prompt; those in which biases do, and norms' scales; and those whose
mixing of tokens does, too."""
KINDS = WHOLE + FIXED + MOVING
TRANSFORMER, WITHOUT_RESIDUAL = "transformer", "transformer without residual path"


def _mixer(sizes: Sizes, tokens: int, layer: int) -> Any:
    match sizes.kind:
        case "mean":
            return Mean(sizes.features)
        case "fixed pattern":
            return FixedAttention(tokens, sizes.features, HEADS, jnp.float32)
        case "convolution":
            return Convolution(sizes.features, REACH, DILATIONS[layer])
        case "linear attention":
            return LinearAttention(sizes.features, HEADS)
    if sizes.kind in (TRANSFORMER, WITHOUT_RESIDUAL):
        return Attention(sizes.features, HEADS, causal=False, bias=False, output_bias=False, rngs=None)
    return _alone


@final
class Network(nnx.Module):
    """Write numbers at the last tokens: `y = W_out x_L + b`, `x_i = block_i(x_{i−1})`.

    All parameters are zero, or one in norms, until they are drawn.

    Args:
        sizes: its sizes.
        task: the task whose tokens it reads.
    """

    def __init__(self, sizes: Sizes, task: Task) -> None:
        self.whole, self.outputs = sizes.kind in ("one layer", "perceptron"), task.outputs
        tokens, inputs, outputs = task.tokens, task.inputs, 1
        if self.whole:
            tokens, inputs, outputs = 1, task.tokens * task.inputs, task.outputs
        bare, features = sizes.kind == "one layer", sizes.features
        # Demonstrations have no order.
        ordered = task.ordered and not self.whole
        self.embedding = None if bare else Linear(inputs, features, "embedding", bias=False, rngs=None)
        self.places = nnx.Param(jnp.zeros((tokens, features))) if ordered else None
        self.stack = OneLayer(inputs, sizes.neurons, outputs) if bare else Stack(_blocks(sizes, tokens))
        self.readout = None if bare else Linear(features, outputs, "readout", rngs=None)

    def embed(self, inputs: Float[Array, "tokens inputs"]) -> Float[Array, "tokens features"]:
        """Return the residual stream before the first layer, `x_0`."""
        x = inputs.reshape(1, -1) if self.whole else inputs
        if self.embedding is not None:
            x = self.embedding(x)
        return x if self.places is None else x + self.places[...]

    def states(
        self, x: Float[Array, "tokens features"], mask: Bool[Array, "tokens"] | None = None
    ) -> Float[Array, "outputs"]:
        """Return the output of the network from its embeddings."""
        return self.read(self.stack(x, mask))

    def read(self, x: Float[Array, "tokens features"]) -> Float[Array, "outputs"]:
        """Return the output from the residual stream after the last layer."""
        y = x if self.readout is None else self.readout(x)
        return y[0] if self.whole else y[-self.outputs :, 0]

    def __call__(
        self, inputs: Float[Array, "tokens inputs"], mask: Bool[Array, "tokens"] | None
    ) -> Float[Array, "outputs"]:
        """Return the output of the network."""
        return self.states(self.embed(inputs), None if self.whole else mask)


def _blocks(sizes: Sizes, tokens: int) -> Iterator[Block | Chain]:
    features, alone = sizes.features, sizes.kind == "perceptron"
    make = Chain if sizes.kind == WITHOUT_RESIDUAL else partial(Block, "paper" if alone else "pre-norm")
    for layer in range(sizes.layers):
        yield make(
            attention=_mixer(sizes, tokens, layer),
            mlp=MLP(features, sizes.neurons, "gelu", rngs=None),
            norm_1=RMSNorm(features, "norm_1") if sizes.norms and not alone else None,
            norm_2=RMSNorm(features, "norm_2") if sizes.norms else None,
        )


def count(sizes: Sizes, task: Task) -> int:
    """Return the number of a network's parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(partial(Network, sizes, task))))


def drawn(sizes: Sizes, task: Task, key: Array) -> Network:
    """Return a network with zero biases and random weights, of variance one over the number of nonzero inputs."""
    network = with_random_weights(Network(sizes, task), key)
    stack: Any = network.stack
    for part in (stack.skip, stack.input) if network.embedding is None else (network.embedding,):
        part.kernel[...] *= (task.inputs / task.nonzero) ** 0.5
    if network.places is not None:
        network.places[...] *= 0.02 * task.tokens**0.5
    return network
