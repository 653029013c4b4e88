"""Tasks in which a prompt gives a function: it names one of many, or demonstrates a new one."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product
from typing import NamedTuple, Protocol, final, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

CONTENT = 4
"""The number of numbers that a named function is applied to."""


class Examples(NamedTuple):
    """Inputs of networks with their targets.

    Args:
        inputs: the numbers of every token, `[examples, tokens, inputs]`; zero where there is no token.
        mask: true for real tokens, `[examples, tokens]`.
        targets: the right outputs of the last tokens, `[examples, outputs]`.
        weights: of each example in the loss of training, 1 in the mean, `[examples]`; all are equal if absent.
    """

    inputs: Float[Array, "examples tokens inputs"]
    mask: Bool[Array, "examples tokens"]
    targets: Float[Array, "examples outputs"]
    weights: Float[Array, "examples"] | None = None


def in_digits(numbers: Array, digits: int, base: int) -> Float[Array, "examples digits base"]:
    """Return numbers in digits, each of them one for its value and zero for all others.

    Example:
        >>> in_digits(jnp.array([7]), 2, 3)[0].tolist()
        [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    powers = base ** np.arange(digits)[::-1]
    return jax.nn.one_hot(numbers[:, None] // powers % base, base)


@runtime_checkable
class Task(Protocol):
    """Examples of functions that prompts give."""

    @property
    def tokens(self) -> int:
        """The number of tokens."""

    @property
    def inputs(self) -> int:
        """The number of numbers of a token."""

    @property
    def outputs(self) -> int:
        """The number of last tokens whose output is read."""

    @property
    def ordered(self) -> bool:
        """Whether tokens have an order."""

    @property
    def nonzero(self) -> int:
        """The number of numbers of a token that aren't zero."""

    def draw(self, key: Array, number: int) -> Examples:
        """Draw examples as in training."""

    def chosen_by(self, key: Array, number: int) -> Examples:
        """Draw the examples by whose error rates and norms are chosen."""


@final
@dataclass(frozen=True, kw_only=True)
class Named:
    """Prompts that name one of many functions: a number in digits, a token each, before a sequence of numbers.

    Each function is another orthogonal matrix drawn at random, so that none follows from the others: it moves the
    numbers to other places and changes signs, or, if dense, mixes all numbers.

    Args:
        digits: number of digits of a name, the prompt's length.
        base: number of values of a digit.
        rarest: the probability of the rarest function relative to the most frequent one in training, where the
            logarithm falls evenly between them, in an order that names don't tell.
        dense: whether functions mix all numbers.

    Example:
        >>> Named(digits=2, base=4).functions
        16
    """

    digits: int
    base: int
    rarest: float = 1.0
    dense: bool = False

    @property
    def functions(self) -> int:
        """The number of functions."""
        return self.base**self.digits

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.digits + CONTENT

    @property
    def inputs(self) -> int:
        """The number of numbers of a token: one for every value of a digit, and one of the sequence."""
        return self.base + 1

    @property
    def outputs(self) -> int:
        """The number of last tokens whose output is read."""
        return CONTENT

    ordered, nonzero = True, 1
    """Whether tokens have an order, and how many numbers of a token aren't zero."""

    def shares(self) -> Float[Array, "functions"]:
        """Return the probability of each function in training."""
        places = jax.random.permutation(jax.random.key(1), self.functions)
        weights = self.rarest ** (places / (self.functions - 1))
        return weights / weights.sum()

    def matrices(self) -> Float[Array, "functions content content"]:
        """Return the matrix of each function, the same in every network."""
        key = jax.random.key(1000)
        if self.dense:
            return jnp.linalg.qr(jax.random.normal(key, (self.functions, CONTENT, CONTENT)))[0]
        places = jnp.array(list(permutations(range(CONTENT))))
        signs = jnp.array(list(product((-1.0, 1.0), repeat=CONTENT)))
        which = jax.random.permutation(key, len(places) * len(signs))[: self.functions]
        return signs[which // len(places)][..., None] * jax.nn.one_hot(places[which % len(places)], CONTENT)

    def named(self, functions: Array, contents: Float[Array, "examples content"]) -> Examples:
        """Return examples of given functions and sequences."""
        digits = in_digits(functions, self.digits, self.base)
        prompts = jnp.pad(digits, ((0, 0), (0, CONTENT), (0, 1)))
        numbers = jnp.pad(contents[:, :, None], ((0, 0), (self.digits, 0), (self.base, 0)))
        targets = (self.matrices()[functions] @ contents[:, :, None])[..., 0]
        return Examples(prompts + numbers, jnp.ones((len(contents), self.tokens), bool), targets)

    def draw(self, key: Array, number: int) -> Examples:
        """Draw examples as in training."""
        function_key, content_key = jax.random.split(key)
        functions = jax.random.categorical(function_key, jnp.log(self.shares()), shape=(number,))
        return self.named(functions, jax.random.uniform(content_key, (number, CONTENT), minval=-1.0))

    chosen_by = draw

    def blind(self) -> float:
        """Return the error of the best output independent of the prompt, where functions are equally frequent."""
        # It is that of the mean of all functions.
        matrices = self.matrices()
        apart = ((matrices - matrices.mean(0)) ** 2).sum(-1).mean()
        return float(jnp.sqrt(apart / 3))  # a number uniform between −1 and 1 has the variance 1/3


Values = Callable[[Array, Float[Array, "points inputs"]], Float[Array, "points"]]
"""From a key, which draws a function, and points to the function's values at them."""


def _linear(key: Array, x: Array) -> Array:
    return x @ jax.random.normal(key, x.shape[-1:]) * x.shape[-1] ** -0.5


def _sparse(key: Array, x: Array, nonzero: int = 2) -> Array:
    place_key, weights_key = jax.random.split(key)
    places = jax.random.permutation(place_key, x.shape[-1])[:nonzero]
    return x[:, places] @ jax.random.normal(weights_key, (nonzero,)) * nonzero**-0.5


def _two_layers(key: Array, x: Array, neurons: int = 4) -> Array:
    inner_key, outer_key = jax.random.split(key)
    inner = jax.random.normal(inner_key, (x.shape[-1], neurons)) * x.shape[-1] ** -0.5
    # Half of the square of a normal number is what a ReLU leaves of it in the mean.
    return jax.nn.relu(x @ inner) @ jax.random.normal(outer_key, (neurons,)) * (2 / neurons) ** 0.5


def _sine(key: Array, x: Array) -> Array:
    size_key, phase_key = jax.random.split(key)
    size, phase = jax.random.uniform(size_key, (), minval=0.5, maxval=1.5), jax.random.uniform(phase_key)
    return size * jnp.sin(2 * x[:, 0] + 2 * jnp.pi * phase) * (24 / 13) ** 0.5


FAMILIES: dict[str, tuple[Values, int]] = {
    "linear": (_linear, 3),
    "sparse linear": (_sparse, 6),
    "two layers": (_two_layers, 3),
    "sine": (_sine, 1),
}
"""Functions after Garg et al. (2022) with their number of inputs; the variance of values is 1 in the mean."""


@final
@dataclass(frozen=True, kw_only=True)
class Demonstrated:
    """Prompts that demonstrate a function by values at random points, before a point whose value is asked for.

    Every example has a function of its own, so that a test asks for functions that weren't trained on.

    Args:
        family: a name in `FAMILIES`.
        demonstrations: the largest number of demonstrations; any number from one on is as frequent in training.
        pool: number of functions in training; a new one in every example if absent.
    """

    family: str
    demonstrations: int
    pool: int | None = None

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.demonstrations + 1

    @property
    def inputs(self) -> int:
        """The number of numbers of a token: the point, the value there, and whether the value is asked for."""
        return FAMILIES[self.family][1] + 2

    @property
    def outputs(self) -> int:
        """The number of last tokens whose output is read."""
        return 1

    ordered = False

    @property
    def nonzero(self) -> int:
        """The number of numbers of a token that aren't zero."""
        return FAMILIES[self.family][1] + 1

    def example(self, key: Array, count: Array) -> Examples:
        """Draw an example of a new function with a number of demonstrations, without an axis of examples."""
        function_key, points_key = jax.random.split(key)
        return self.given(function_key, points_key, count)

    def given(self, function_key: Array, points_key: Array, count: Array) -> Examples:
        """Draw an example of a function at points, without an axis of examples."""
        values, dimensions = FAMILIES[self.family]
        points = jax.random.normal(points_key, (self.tokens, dimensions))
        y = values(function_key, points)
        question = jnp.arange(self.tokens) == self.demonstrations
        inputs = jnp.concatenate([points, jnp.where(question, 0, y)[:, None], question[:, None]], axis=-1)
        mask = jnp.arange(self.tokens) >= self.demonstrations - count
        return Examples(jnp.where(mask[:, None], inputs, 0), mask, y[-1:])

    def draw(self, key: Array, number: int) -> Examples:
        """Draw examples as in training."""
        functions, points, counts = jax.random.split(key, 3)
        function_keys = jax.random.split(functions, number)
        if self.pool is not None:
            members = jax.random.randint(functions, (number,), 0, self.pool)
            function_keys = jax.random.split(jax.random.key(1000), self.pool)[members]
        count = jax.random.randint(counts, (number,), 1, self.demonstrations + 1)
        return jax.vmap(self.given)(function_keys, jax.random.split(points, number), count)

    chosen_by = draw

    def draw_with(self, key: Array, number: int, count: int) -> Examples:
        """Draw examples of new functions, all with one number of demonstrations."""
        return jax.vmap(self.example, (0, None))(jax.random.split(key, number), jnp.asarray(count))

    def other_functions(self, key: Array, number: int) -> Examples:
        """Draw examples of new functions at the same points, with all demonstrations."""
        functions_key, points_key = jax.random.split(key)
        return jax.vmap(self.given, (0, None, None))(
            jax.random.split(functions_key, number), points_key, jnp.asarray(self.demonstrations)
        )


def nearest(examples: Examples) -> Float[Array, "examples outputs"]:
    """Return the value of the nearest demonstration."""
    points, values = examples.inputs[..., :-2], examples.inputs[..., -2]
    far = ((points - points[:, -1:]) ** 2).sum(-1)
    closest = jnp.where(examples.mask, far, jnp.inf)[:, :-1].argmin(-1)
    return jnp.take_along_axis(values, closest[:, None], axis=-1)


def least_squares(examples: Examples) -> Float[Array, "examples outputs"]:
    """Return the value of the linear function closest to the demonstrations, the smallest one of several."""
    points, values = examples.inputs[..., :-2], examples.inputs[..., -2]
    solve = jax.vmap(lambda x, y: jnp.linalg.lstsq(x[:-1], y[:-1])[0])
    return (points[:, -1] * solve(points, values)).sum(-1, keepdims=True)
