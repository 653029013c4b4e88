"""Networks of one size in which a prompt selects the function of a sequence: with fixed weights, and a Transformer."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.nn import MLP, Attention, Block, Linear, Stack
from duat_jax.nn.linear import PRECISION
from duat_jax.papers.validation import refuse, too_small, unknown

NUMBERS = 8
"""The length of a sequence."""


def _mean_so_far(x: Array) -> Array:
    return jnp.cumsum(x) / jnp.arange(1, len(x) + 1, dtype=x.dtype)


PROMPT_TASKS: dict[str, dict[str, Callable[[Array], Array]]] = {
    "four functions": {
        "negate": lambda x: -x,
        "square": lambda x: 2 * x * x - 1,
        "reverse": lambda x: x[::-1],
        "mean so far": _mean_so_far,
    },
    "eight shifts": {f"shift by {places}": partial(jnp.roll, shift=places) for places in range(NUMBERS)},
}
"""Functions of a sequence of eight numbers that prompts select, by task and prompt: two functions of each number alone
and two that mix places; or places alone, each prompt another shift."""

N = TypeVar("N")
S = TypeVar("S", bound=Any)
"""Sizes of a network, with a number of `neurons`."""

FOUR, SHIFTS = PROMPT_TASKS
"""The names of both tasks."""

PROMPT_NETWORKS = ("perceptron", "fixed pattern", "transformer")
"""Kinds of networks: residual layers that read everything as one vector, and two whose tokens are mixed, by a pattern
that is learned and the same for every input, or by attention."""

PROMPTS = "own token", "every number", "nearly alike"
"""The places of a prompt's vector: at a token of its own; there and at every number; or at its own, as a vector that
isn't trained and is apart from the first prompt's by `ALIKE` of what random vectors are."""
ALIKE = 0.05


@dataclass(frozen=True, kw_only=True)
class PromptSizes:
    """The sizes of a network that reads a prompt and a sequence of eight numbers.

    Args:
        kind: a name in `PROMPT_NETWORKS`: `"perceptron"`, `"fixed pattern"` or `"transformer"`.
        task: a name in `PROMPT_TASKS`: `"four functions"` or `"eight shifts"`.
        layers: number of blocks.
        features: width of the residual stream.
        neurons: hidden units of a block's MLP.
        heads: of its attention, a divisor of `features`; a perceptron has none, and any number is the same to it.
        prompt: place of the prompt's vector: `"own token"`, `"every number"` (there too), or `"nearly alike"` (at a
            token of its own, as vectors that aren't trained and nearly the same).

    Raises:
        InvalidInput: if a name is unknown, a size isn't a positive integer, or heads don't divide features.

    Example:
        >>> import duat_jax as duat
        >>> sizes = duat.papers.PromptSizes(kind="transformer", task="eight shifts", layers=1, features=8, neurons=4)
        >>> duat.papers.count_parameters(sizes)
        477
    """

    kind: str
    task: str
    layers: int
    features: int
    neurons: int
    heads: int = 4
    prompt: str = "own token"

    def __post_init__(self) -> None:
        wrong = [
            *unknown("kind", self.kind, PROMPT_NETWORKS),
            *unknown("task", self.task, PROMPT_TASKS),
            *unknown("prompt", self.prompt, PROMPTS),
            *too_small(1, layers=self.layers, features=self.features, neurons=self.neurons, heads=self.heads),
        ]
        if not wrong and self.kind != "perceptron" and self.features % self.heads:
            wrong.append(f"{self.features} features aren't divided by {self.heads} heads: give a multiple")
        refuse(wrong)


@final
class FixedAttention(nnx.Module):
    """Mix tokens by a pattern independent of the input: `Σ_h softmax(S_h) x W_{V,h} W_{O,h}`, with `S_h` learned.

    Args:
        tokens: length of the sequence.
        features: width of the residual stream.
        heads: number of heads.
        dtype: dtype of the parameters.
    """

    def __init__(self, tokens: int, features: int, heads: int, dtype: DTypeLike) -> None:
        self.scores = nnx.Param(jnp.zeros((heads, tokens, tokens), dtype))
        self.value = Linear(features, features, "attention.value", bias=False, dtype=dtype, rngs=None)
        self.output = Linear(features, features, "attention.output", bias=False, dtype=dtype, rngs=None)

    def __call__(
        self, x: Float[Array, "tokens features"], mask: Bool[Array, "tokens"] | None = None
    ) -> Float[Array, "tokens features"]:
        """Mix the tokens."""
        pattern = jax.nn.softmax(self.scores[...], where=mask)
        values = self.value(x).reshape(len(x), len(pattern), -1)
        mixed = jnp.einsum("hqk,khd->qhd", pattern, values, precision=PRECISION)
        return self.output(mixed.reshape(x.shape))


def _alone(x: Array, mask: None) -> Array:
    return x


def _block(sizes: PromptSizes, dtype: DTypeLike) -> Block:
    features, heads = sizes.features, sizes.heads
    mlp = MLP(features, sizes.neurons, "gelu", dtype=dtype, rngs=None)
    if sizes.kind == "perceptron":
        return Block("paper", attention=_alone, mlp=mlp)
    if sizes.kind == "fixed pattern":
        return Block("pre-norm", attention=FixedAttention(NUMBERS + 1, features, heads, dtype), mlp=mlp)
    attention = Attention(features, heads, causal=False, bias=False, output_bias=False, dtype=dtype, rngs=None)
    return Block("pre-norm", attention=attention, mlp=mlp)


@final
class PromptNetwork(nnx.Module):
    """Read a prompt and a sequence, and write a sequence: `y = W_out x_L + b`, `x_i = block_i(x_{i−1})`, without norms.

    The perceptron's stream is one vector of the whole input; the others' has a token for the prompt and one for each
    number. All parameters are zero; `train_prompted` draws and trains them.

    Args:
        sizes: its sizes.
        dtype: dtype of the parameters.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> sizes = duat.papers.PromptSizes(kind="perceptron", task="eight shifts", layers=1, features=8, neurons=4)
        >>> duat.papers.PromptNetwork(sizes)(jnp.ones(8), jnp.array(3)).shape
        (8,)

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Section 4.1, compare a perceptron with a Transformer.
    """

    def __init__(self, sizes: PromptSizes, dtype: DTypeLike = jnp.float32) -> None:
        self.whole, self.placed = sizes.kind == "perceptron", sizes.prompt
        features, numbers = sizes.features, NUMBERS if self.whole else 1
        self.prompt = nnx.Param(jnp.zeros((len(PROMPT_TASKS[sizes.task]), features), dtype))
        self.content = nnx.Param(jnp.zeros((numbers, features), dtype))
        self.places = None if self.whole else nnx.Param(jnp.zeros((NUMBERS, features), dtype))
        self.stack = Stack(_block(sizes, dtype) for _ in range(sizes.layers))
        self.readout = Linear(features, numbers, "readout", dtype=dtype, rngs=None)

    def embed(self, sequence: Float[Array, "numbers"], prompt: Int[Array, ""]) -> Float[Array, "tokens features"]:
        """Return the residual stream before the first layer, `x_0`."""
        vectors = self.prompt[...]
        if self.placed == "nearly alike":
            vectors = jax.lax.stop_gradient(vectors[0] + ALIKE * (vectors - vectors[0]))
        if self.places is None:
            return (vectors[prompt] + sequence @ self.content[...])[None]
        numbers = sequence[:, None] * self.content[...] + self.places[...]
        if self.placed == "every number":
            numbers = numbers + vectors[prompt]
        return jnp.concatenate([vectors[prompt][None], numbers])

    def states(self, x: Float[Array, "tokens features"]) -> Float[Array, "numbers"]:
        """Return the output of the network from its embeddings."""
        return self.read(self.stack(x))

    def read(self, x: Float[Array, "tokens features"]) -> Float[Array, "numbers"]:
        """Return the output from the residual stream after the last layer."""
        written = self.readout(x)
        return written[0] if self.whole else written[1:, 0]

    def __call__(self, sequence: Float[Array, "numbers"], prompt: Int[Array, ""]) -> Float[Array, "numbers"]:
        """Return the output of the network after prompt `0`, `1`, …; JAX takes a larger number for the last one."""
        return self.states(self.embed(sequence, prompt))


def count_parameters(sizes: PromptSizes) -> int:
    """Count the parameters of a network.

    Args:
        sizes: its sizes.

    Returns:
        The number of all entries of its arrays.

    Example:
        >>> import duat_jax as duat
        >>> sizes = duat.papers.PromptSizes(kind="perceptron", task="eight shifts", layers=1, features=8, neurons=4)
        >>> duat.papers.count_parameters(sizes)
        276
    """
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(partial(PromptNetwork, sizes))))


def matched(sizes: S, parameters: int, count: Callable[[Any], int] | None = None) -> S:
    """Choose the number of neurons that brings the number of parameters closest to a target.

    Args:
        sizes: the sizes of a network; their number of neurons doesn't matter.
        parameters: the number of parameters to come close to.
        count: counts the parameters of sizes; of prompted networks if it isn't given.

    Returns:
        The sizes with another number of neurons.

    Raises:
        InvalidInput: if the network has more parameters with a single neuron.

    Example:
        >>> import duat_jax as duat
        >>> from dataclasses import replace
        >>> one = duat.papers.PromptSizes(kind="transformer", task="eight shifts", layers=1, features=8, neurons=32)
        >>> duat.papers.matched(replace(one, kind="perceptron"), duat.papers.count_parameters(one)).neurons
        44
    """
    count = count or count_parameters
    fewest, more = (count(replace(sizes, neurons=neurons)) for neurons in (1, 2))
    neurons = 1 + round((parameters - fewest) / (more - fewest))
    if neurons < 1:
        raise InvalidInput(
            f"{parameters} parameters are too few: with one neuron a layer the network has {fewest}; give at least that"
        )
    return replace(sizes, neurons=neurons)


def with_random_weights(network: N, key: Array) -> N:
    """Return a network with random weights of variance one over the number of inputs; vectors stay as they are."""
    leaves, tree = jax.tree.flatten(network)
    keys = jax.random.split(key, len(leaves))
    weights = [
        jax.random.normal(key, leaf.shape, leaf.dtype) * leaf.shape[-2] ** -0.5 if leaf.ndim > 1 else leaf
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    filled: N = jax.tree.unflatten(tree, weights)
    return filled


def drawn(sizes: PromptSizes, key: Array, dtype: DTypeLike = jnp.float32) -> PromptNetwork:
    """Return a network with random weights of variance one over the number of inputs, and zero biases."""
    return with_random_weights(PromptNetwork(sizes, dtype), key)
