"""Functions whose argument stands in several tokens: of as many numbers, and of the places that others point to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from experiments.generalization.tasks import Examples

NUMBERS, ELEMENTS, MOST = 8, 8, 4
"""The number of numbers, of places that point to each other, and the largest number of steps."""


def _constants(number: int, *shape: int) -> Array:
    """Return random numbers of a function, the same in every network."""
    with jax.ensure_compile_time_eval():
        return jax.random.normal(jax.random.key(1000 + number), shape)


def _wave(x: Array) -> Array:
    return jnp.sin(2 * jnp.pi * x @ _constants(0, NUMBERS) / NUMBERS**0.5)


def _bump(x: Array) -> Array:
    off = x - 0.5 - 0.2 * _constants(1, NUMBERS)
    return jnp.exp(-8 * (off**2 * jnp.exp(_constants(2, NUMBERS))).sum(-1) / NUMBERS)


def _cone(x: Array) -> Array:
    off = x - 0.5 - 0.2 * _constants(3, NUMBERS)
    return jnp.sqrt((off**2 * jnp.exp(_constants(4, NUMBERS))).sum(-1))


def _ridges(x: Array) -> Array:
    directions = _constants(5, NUMBERS, 4) / NUMBERS**0.5
    return jnp.sin(2 * jnp.pi * (x @ directions + _constants(6, 4))).sum(-1)


def _board(x: Array) -> Array:
    return 1.0 - 2.0 * (jnp.floor(4 * x).sum(-1) % 2)


def _turned_board(x: Array) -> Array:
    return _board(x @ jnp.array([[0.8, -0.6], [0.6, 0.8]]))


Function = Callable[[Float[Array, "points numbers"]], Float[Array, "points"]]

SMOOTH: dict[str, Function] = {"wave": _wave, "bump": _bump, "cone": _cone, "ridges": _ridges}
"""Functions of eight numbers, each of which counts with a weight of its own: a wave along one direction; an analytic
bump; a distance from a point, of smoothness 1; and the sum of waves along four directions."""
JUMPS: dict[str, Function] = {"board": _board, "turned board": _turned_board}
"""Functions of two numbers that are −1 or 1: the fields of a board of four by four, as it lies and turned."""


@final
@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A function of several numbers, a token each, whose value is read at the last one.

    Args:
        name: of the function, in `SMOOTH` or `JUMPS`.
    """

    name: str

    inputs, outputs, ordered, nonzero = 2, 1, True, 2
    """The number of numbers of a token: one of the function's and a one; of tokens whose output is read, whether tokens
    have an order, and how many numbers of a token aren't zero."""

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return NUMBERS if self.name in SMOOTH else 2

    def values(self, x: Float[Array, "points numbers"]) -> Float[Array, "points"]:
        """Return the function's values, with a mean of 0 and a variance of 1 over the cube."""
        function = (SMOOTH | JUMPS)[self.name]
        if self.name in JUMPS:
            return function(x)
        with jax.ensure_compile_time_eval():
            known = function(jax.random.uniform(jax.random.key(1000), (2**16, NUMBERS)))
            mean, deviation = known.mean(), known.std()
        return (function(x) - mean) / deviation

    def draw(self, key: Array, number: int) -> Examples:
        """Draw examples as in training."""
        x = jax.random.uniform(key, (number, self.tokens))
        # Networks read numbers of variance 1.
        inputs = jnp.stack([12**0.5 * (x - 0.5), jnp.ones_like(x)], -1)
        return Examples(inputs, jnp.ones(x.shape, bool), self.values(x)[:, None])

    chosen_by = draw


@final
@dataclass(frozen=True, kw_only=True)
class Pointers:
    """Places that point to each other, by a permutation that is drawn for every example, and a place to begin at.

    The value of the place is asked for at which so many steps end. One token says of each place where it points to;
    the last one says where to begin, and how many steps are to be taken.

    Args:
        most: the largest number of steps; any number from one on is as frequent in training.
    """

    most: int = MOST

    outputs, ordered, nonzero = 1, True, 2
    """The number of tokens whose output is read, whether tokens have an order, and how many numbers of a token aren't
    zero."""
    tokens = ELEMENTS + 1
    """The number of tokens."""

    @property
    def inputs(self) -> int:
        """The number of numbers of a token: its place, where it points to, and the steps."""
        return 2 * ELEMENTS + self.most

    def draw(self, key: Array, number: int) -> Examples:
        """Draw examples as in training."""
        steps_key, key = jax.random.split(key)
        return self.asked(key, jax.random.randint(steps_key, (number,), 1, self.most + 1))

    chosen_by = draw

    def asked(self, key: Array, steps: Int[Array, "examples"]) -> Examples:
        """Draw examples of given numbers of steps."""
        number = len(steps)
        pointers_key, start_key = jax.random.split(key)
        pointers = jax.vmap(lambda key: jax.random.permutation(key, ELEMENTS))(jax.random.split(pointers_key, number))
        start = jax.random.randint(start_key, (number,), 0, ELEMENTS)
        place = start
        for step in range(self.most):
            place = jnp.where(step < steps, jnp.take_along_axis(pointers, place[:, None], 1)[:, 0], place)
        own = jnp.broadcast_to(jnp.eye(ELEMENTS), (number, ELEMENTS, ELEMENTS))
        of_places = jnp.concatenate([own, jax.nn.one_hot(pointers, ELEMENTS)], -1)
        asked = [jax.nn.one_hot(start, ELEMENTS), jnp.zeros((number, ELEMENTS)), jax.nn.one_hot(steps - 1, self.most)]
        last = jnp.concatenate(asked, -1)[:, None]
        inputs = jnp.concatenate([jnp.pad(of_places, ((0, 0), (0, 0), (0, self.most))), last], 1)
        values = jnp.linspace(-1.0, 1.0, ELEMENTS)
        values = values / jnp.sqrt((values**2).mean())
        return Examples(inputs, jnp.ones(inputs.shape[:2], bool), values[place][:, None])
