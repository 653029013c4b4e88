"""Networks in which a prompt selects the function of a sequence, with equal training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import DuatError
from duat_jax.nn import MLP, Attention, Block, Linear, Stack
from duat_jax.nn.linear import PRECISION

CONTENT = 8
"""The number of numbers in a sequence."""


def _mean_so_far(x: Array) -> Array:
    return jnp.cumsum(x) / jnp.arange(1, len(x) + 1, dtype=x.dtype)


Function = Callable[[Array], Array]
"""From a sequence to another one, `[content]` each."""

TASKS: dict[str, dict[str, Function]] = {
    "four functions": {
        "negate": lambda x: -x,
        "square": lambda x: 2 * x * x - 1,
        "reverse": lambda x: x[::-1],
        "mean so far": _mean_so_far,
    },
    "eight shifts": {f"shift by {places}": partial(jnp.roll, shift=places) for places in range(CONTENT)},
}
"""The functions that a prompt selects: two functions of each number alone and two that mix places; or places alone,
each prompt another one."""

N = TypeVar("N")
S = TypeVar("S", bound=Any)
"""Sizes of a network, with a number of `neurons`."""

FOUR, SHIFTS = TASKS
"""The names of both tasks."""

KINDS = ("perceptron", "fixed pattern", "transformer")
"""The networks: one that reads everything as one vector, and two whose tokens are mixed: by a pattern that is learned
once and for all, and by one that is made from the input."""


PROMPTS = "own token", "every number", "nearly alike"
"""The places of a prompt's vector: at a token of its own; there and at every number; or at its own, as a vector that
isn't trained and is apart from the first prompt's by `ALIKE` of what random vectors are."""
ALIKE = 0.05


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of a network.

    Args:
        kind: a name in `KINDS`.
        task: a name in `TASKS`.
        layers: number of blocks.
        features: width of the residual stream.
        neurons: hidden units of a block's MLP.
        heads: of its attention.
        prompt: a name in `PROMPTS`, where the prompt's vector stands.
    """

    kind: str
    task: str
    layers: int
    features: int
    neurons: int
    heads: int = 4
    prompt: str = "own token"


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


def _block(sizes: Sizes, dtype: DTypeLike) -> Block:
    features, heads = sizes.features, sizes.heads
    mlp = MLP(features, sizes.neurons, "gelu", dtype=dtype, rngs=None)
    if sizes.kind == "perceptron":
        return Block("paper", attention=_alone, mlp=mlp)
    if sizes.kind == "fixed pattern":
        return Block("pre-norm", attention=FixedAttention(CONTENT + 1, features, heads, dtype), mlp=mlp)
    attention = Attention(features, heads, causal=False, bias=False, output_bias=False, dtype=dtype, rngs=None)
    return Block("pre-norm", attention=attention, mlp=mlp)


@final
class Network(nnx.Module):
    """Read a prompt and a sequence, and write a sequence: `y = W_out x_L + b`, `x_i = block_i(x_{i−1})`, without norms.

    The perceptron's stream is one vector of the whole input; the others' has a token for the prompt and one for each
    number. All parameters are zero until they are drawn.

    Args:
        sizes: what it is made of.
        dtype: dtype of the parameters.
    """

    def __init__(self, sizes: Sizes, dtype: DTypeLike = jnp.float32) -> None:
        self.whole, self.placed = sizes.kind == "perceptron", sizes.prompt
        features, numbers = sizes.features, CONTENT if self.whole else 1
        self.prompt = nnx.Param(jnp.zeros((len(TASKS[sizes.task]), features), dtype))
        self.content = nnx.Param(jnp.zeros((numbers, features), dtype))
        self.places = None if self.whole else nnx.Param(jnp.zeros((CONTENT, features), dtype))
        self.stack = Stack(_block(sizes, dtype) for _ in range(sizes.layers))
        self.readout = Linear(features, numbers, "readout", dtype=dtype, rngs=None)

    def embed(self, content: Float[Array, "content"], prompt: Int[Array, ""]) -> Float[Array, "tokens features"]:
        """Return the residual stream before the first layer, `x_0`."""
        vectors = self.prompt[...]
        if self.placed == "nearly alike":
            vectors = jax.lax.stop_gradient(vectors[0] + ALIKE * (vectors - vectors[0]))
        if self.places is None:
            return (vectors[prompt] + content @ self.content[...])[None]
        numbers = content[:, None] * self.content[...] + self.places[...]
        if self.placed == "every number":
            numbers = numbers + vectors[prompt]
        return jnp.concatenate([vectors[prompt][None], numbers])

    def states(self, x: Float[Array, "tokens features"]) -> Float[Array, "content"]:
        """Return the output of the network from its embeddings."""
        return self.read(self.stack(x))

    def read(self, x: Float[Array, "tokens features"]) -> Float[Array, "content"]:
        """Return the output from the residual stream after the last layer."""
        written = self.readout(x)
        return written[0] if self.whole else written[1:, 0]

    def __call__(self, content: Float[Array, "content"], prompt: Int[Array, ""]) -> Float[Array, "content"]:
        """Return the output of the network."""
        return self.states(self.embed(content, prompt))


def count(sizes: Sizes) -> int:
    """Return the number of a network's parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(partial(Network, sizes))))


def matched(sizes: S, parameters: int, count: Callable[[Any], int] = count) -> S:
    """Return the sizes with the number of neurons that brings the number of parameters closest to a target.

    Example:
        >>> like = Sizes(kind="perceptron", task="eight shifts", layers=2, features=8, neurons=5)
        >>> matched(like, count(replace(like, neurons=40))).neurons
        40
    """
    fewest, more = (count(replace(sizes, neurons=neurons)) for neurons in (1, 2))
    neurons = 1 + round((parameters - fewest) / (more - fewest))
    if neurons < 1:
        raise DuatError(
            f"{parameters} parameters are too few for {sizes}: even with one neuron a layer it has {fewest}"
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


def drawn(sizes: Sizes, key: Array, dtype: DTypeLike = jnp.float32) -> Network:
    """Return a network with random weights of variance one over the number of inputs, and zero biases."""
    return with_random_weights(Network(sizes, dtype), key)


def sequences(key: Array, number: int, dtype: DTypeLike = jnp.float32) -> Float[Array, "number content"]:
    """Return random sequences, every number uniform between −1 and 1."""
    return jax.random.uniform(key, (number, CONTENT), dtype, -1.0, 1.0)


@partial(jax.jit, static_argnames=("sizes", "steps", "batch"))
def train(sizes: Sizes, keys: Array, *, steps: int, batch: int = 128, rate: float | Array = 3e-3) -> Network:
    """Train networks on new sequences and prompts in every step, with Adam on the mean squared error."""
    share = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(1, steps // 20), max(2, steps))
    rule = optax.adam(lambda step: rate * share(step))
    functions = list(TASKS[sizes.task].values())

    def loss(network: Network, key: Array) -> Array:
        content_key, prompt_key = jax.random.split(key)
        content = sequences(content_key, batch)
        prompts = jax.random.randint(prompt_key, (batch,), 0, len(functions))
        target = jax.vmap(lambda prompt, x: jax.lax.switch(prompt, functions, x))(prompts, content)
        return ((jax.vmap(network)(content, prompts) - target) ** 2).mean()

    def step(carried: tuple, key: Array) -> tuple[tuple, None]:
        network, state = carried
        updates, state = rule.update(jax.grad(loss)(network, key), state, network)
        return (optax.apply_updates(network, updates), state), None

    def train_seed(key: Array) -> Network:
        weights_key, data_key = jax.random.split(key)
        network = drawn(sizes, weights_key)
        return jax.lax.scan(step, (network, rule.init(network)), jax.random.split(data_key, steps))[0][0]

    return jax.lax.map(train_seed, keys)


@jax.jit
def outputs(networks: Network, content: Float[Array, "number content"]) -> Float[Array, "seeds prompts number content"]:
    """Return the outputs of networks for every prompt."""

    def of_one(network: Network) -> Array:
        over_content = jax.vmap(network, (0, None))
        return jax.vmap(over_content, (None, 0))(content, jnp.arange(len(network.prompt[...])))

    return jax.lax.map(of_one, networks)


def targets(task: str, content: Float[Array, "number content"]) -> Float[Array, "prompts number content"]:
    """Return the target of every prompt."""
    return jnp.stack([jax.vmap(function)(content) for function in TASKS[task].values()])


def root_mean_square(error: Float[Array, "... number content"]) -> Float[Array, "..."]:
    """Return the root mean square over sequences and positions."""
    return jnp.sqrt((error**2).mean((-2, -1)))


def blind(task: str, content: Float[Array, "number content"]) -> Float[Array, "prompts"]:
    """Return the error of the best output independent of the prompt: the mean of all prompts' targets.

    Example:
        >>> import jax.numpy as jnp
        >>> [round(float(error), 3) for error in blind("four functions", jnp.ones((1, CONTENT)))]
        [1.5, 0.5, 0.5, 0.5]
    """
    target = targets(task, content)
    return root_mean_square(target.mean(0) - target)
