"""Functions of one number that a prompt names, trained where most numbers are in a region that the prompt chooses."""

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from experiments.generalization.measures import measured
from experiments.generalization.networks import Network, Sizes
from experiments.generalization.tasks import Examples, in_digits
from experiments.generalization.training import outputs
from experiments.study import Row

EVEN, DENSE, WEIGHTED = "even", "dense", "weighted"
"""Numbers that are equally dense; denser in a region; or equally dense, with the weight in the loss of denser ones."""
REGIONS, WIDTH, INSIDE, WAVES = 4, 0.4, 0.95, 3
"""The number of regions, their width, the share of training's numbers from the region, and of waves of a function."""
POINTS = 500
"""The number of points between −1 and 1 that errors are taken on."""


@final
@dataclass(frozen=True, kw_only=True)
class Curves:
    """Prompts that name one of many functions of a number between −1 and 1: sums of sine waves.

    Args:
        digits: number of digits of a name, the prompt's length.
        base: number of values of a digit.
        density: `EVEN`, `DENSE` or `WEIGHTED`, the density of numbers in training.

    Example:
        >>> Curves(digits=2, base=4, density=EVEN).functions
        16
    """

    digits: int
    base: int
    density: str

    @property
    def functions(self) -> int:
        """The number of functions."""
        return self.base**self.digits

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.digits + 1

    @property
    def inputs(self) -> int:
        """The number of numbers of a token: one for every value of a digit, and the number itself."""
        return self.base + 1

    outputs, ordered, nonzero = 1, True, 1
    """The number of last tokens whose output is read, whether tokens have an order, and how many numbers of a token
    aren't zero."""

    def values(self, functions: Array, x: Float[Array, "examples"]) -> Float[Array, "examples"]:
        """Return the functions' values, whose variance over all numbers is 1."""
        sizes, phases = jax.random.normal(jax.random.key(1000), (2, self.functions, WAVES))
        sizes *= (2 / (sizes**2).sum(-1, keepdims=True)) ** 0.5
        waves = jnp.sin(jnp.pi * (jnp.arange(1, WAVES + 1) * x[:, None] + 2 * phases[functions]))
        return (sizes[functions] * waves).sum(-1)

    def centres(self) -> Float[Array, "functions"]:
        """Return the centre of each function's region, in an order that names don't tell."""
        regions = jax.random.permutation(jax.random.key(1), self.functions) % REGIONS
        return (2 * regions + 1) / REGIONS - 1

    def inside(self, functions: Array, x: Float[Array, "examples"]) -> Bool[Array, "examples"]:
        """Return whether numbers are in the regions of functions."""
        return jnp.abs(x - self.centres()[functions]) < WIDTH / 2

    def densities(self, functions: Array, x: Float[Array, "examples"]) -> Float[Array, "examples"]:
        """Return the densities of numbers in training, relative to equal ones."""
        if self.density == EVEN:
            return jnp.ones_like(x)
        return (1 - INSIDE) + INSIDE * 2 / WIDTH * self.inside(functions, x)

    def named(self, functions: Array, x: Float[Array, "examples"]) -> Examples:
        """Return examples of given functions and numbers."""
        digits = in_digits(functions, self.digits, self.base)
        prompts = jnp.pad(digits, ((0, 0), (0, 1), (0, 1)))
        inputs = prompts.at[:, -1, -1].set(x)
        return Examples(inputs, jnp.ones((len(x), self.tokens), bool), self.values(functions, x)[:, None])

    def draw(self, key: Array, number: int) -> Examples:
        """Draw examples as in training."""
        function_key, x_key, inside_key, which_key = jax.random.split(key, 4)
        functions = jax.random.randint(function_key, (number,), 0, self.functions)
        x = jax.random.uniform(x_key, (number,), minval=-1.0)
        if self.density == WEIGHTED:
            return self.named(functions, x)._replace(weights=self.densities(functions, x))
        if self.density == DENSE:
            within = (
                self.centres()[functions] + jax.random.uniform(inside_key, (number,), minval=-0.5, maxval=0.5) * WIDTH
            )
            x = jnp.where(jax.random.uniform(which_key, (number,)) < INSIDE, within, x)
        return self.named(functions, x)

    def chosen_by(self, key: Array, number: int) -> Examples:
        """Draw the examples by whose error rates and norms are chosen: equally dense numbers, whatever training has."""
        function_key, x_key = jax.random.split(key)
        functions = jax.random.randint(function_key, (number,), 0, self.functions)
        return self.named(functions, jax.random.uniform(x_key, (number,), minval=-1.0))

    def grid(self) -> tuple[Array, Array]:
        """Return every function's number with every point between −1 and 1, `[functions · points]` each."""
        points = (jnp.arange(POINTS) + 0.5) / POINTS * 2 - 1
        return jnp.repeat(jnp.arange(self.functions), POINTS), jnp.tile(points, self.functions)

    def blind(self) -> Float[Array, "functions points"]:
        """Return the best output independent of the prompt: `E[f | x]`, the mean weighted by densities there."""
        functions, x = self.grid()
        values, weights = (of(functions, x).reshape(self.functions, -1) for of in (self.values, self.densities))
        return jnp.broadcast_to((weights * values).sum(0) / weights.sum(0), values.shape)


def thinned(y: Float[np.ndarray, "... points"]) -> list[Any]:
    """Return every tenth number, for a picture, as plain data."""
    every: list[Any] = np.asarray(y)[..., :: POINTS // 50].round(3).tolist()
    return every


def errors(task: Curves, y: Float[np.ndarray, "functions points"]) -> Row:
    """Return the errors of outputs inside and outside of the regions, and how outputs of two prompts differ outside."""
    functions, x = task.grid()
    targets, inside = (np.asarray(of(functions, x)).reshape(task.functions, -1) for of in (task.values, task.inside))
    squares, outside = (y - targets) ** 2, ~inside

    def slope(where: np.ndarray) -> float:
        # Differences of all pairs are those from the mean of the prompts that are compared there, which are as many at
        # every point, as every region has as many functions.
        number = np.maximum(where.sum(0), 1)
        written, right = (np.where(where, of - np.where(where, of, 0).sum(0) / number, 0) for of in (y, targets))
        return float((written * right).sum() / (right**2).sum())

    return {
        "error": float(np.sqrt(squares.mean())),
        "inside": float(np.sqrt(squares[inside].mean())),
        "outside": float(np.sqrt(squares[outside].mean())),
        "slope, some other's": slope(outside & inside.any(0)),
        "slope, nobody's": slope(outside & ~inside.any(0)),
    }


@measured.register
def _(task: Curves, sizes: Sizes, network: Network) -> Row:
    y = np.asarray(outputs(network, task.named(*task.grid()))).reshape(task.functions, -1)
    # Those of one function a region are enough to be drawn.
    return errors(task, y) | ({"outputs": thinned(y)} if task.functions == REGIONS else {})
