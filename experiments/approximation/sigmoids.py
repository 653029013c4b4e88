"""Universal approximation: fits of a sum of `N` sigmoids to a function on the unit cube, and their errors."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

Function = Callable[[Array], Array]
"""From points of the unit cube, `[points, dimensions]`, to numbers, `[points]`."""


def _wave(x: Array) -> Array:
    return jnp.sin(2 * jnp.pi * x.sum(-1) / x.shape[-1] ** 0.5)


def _bump(x: Array) -> Array:
    return jnp.exp(-8 * ((x - 0.5) ** 2).mean(-1))


def _cone(x: Array) -> Array:
    return jnp.sqrt(((x - 1 / 3) ** 2).sum(-1))


FUNCTIONS: dict[str, Function] = {"wave": _wave, "bump": _bump, "cone": _cone}
"""The functions that are fitted: `sin(2π Σx/√d)`, which varies along one direction; the analytic
`exp(−8 |x − ½|²/d)`; and the distance `|x − ⅓|`, of smoothness `r = 1`."""

NEURONS = (4, 8, 16, 32, 64)
"""The numbers of sigmoids."""

FIT_STEPS = {1: 2000, 2: 2000, 8: 4000}
"""The number of training steps, by the number of dimensions."""


class Units(NamedTuple):
    """The parameters of `G(x) = Σ_j α_j σ(w_j·x + b_j)`, with `σ` the logistic sigmoid.

    Args:
        outer: `α`, `[neurons]`.
        inner: `w`, `[neurons, dimensions]`.
        bias: `b`, `[neurons]`.
    """

    outer: Float[Array, "*seeds neurons"]
    inner: Float[Array, "*seeds neurons dimensions"]
    bias: Float[Array, "*seeds neurons"]


def approximate(units: Units, x: Float[Array, "points dimensions"]) -> Float[Array, "points"]:
    """Return `G(x) = Σ_j α_j σ(w_j·x + b_j)`.

    Example:
        >>> import jax.numpy as jnp
        >>> approximate(Units(jnp.array([4.0]), jnp.array([[0.0]]), jnp.array([0.0])), jnp.array([[0.3]])).tolist()
        [2.0]
    """
    return _activations(units, x) @ units.outer


def _activations(units: Units, x: Array) -> Array:
    return jax.nn.sigmoid(x @ units.inner.T + units.bias)


def staircase(function: Function, neurons: int, steepness: float = 1e9) -> Units:
    """Return `N` units that approximate a function of one variable by steps, as in a proof of Cybenko's theorem.

    Example:
        >>> import jax.numpy as jnp
        >>> approximate(staircase(lambda x: x[:, 0], 2), jnp.array([[0.0], [0.4], [0.6], [1.0]])).tolist()
        [0.25, 0.25, 0.75, 0.75]
    """
    # The first unit is the constant `f(x_1)`, the others are steps of `f(x_j) − f(x_{j−1})` half-way between
    # neighbouring points `x_j = (2j − 1) / 2N`: the error is at most the largest change of `f` within `1 / 2N`.
    places = (2 * jnp.arange(1, neurons + 1) - 1) / (2 * neurons)
    values = function(places[:, None])
    inner = jnp.full(neurons, steepness).at[0].set(0)
    between = (jnp.arange(neurons) / neurons).at[0].set(0)
    # A sigmoid of zero is a half.
    outer = jnp.diff(values, prepend=jnp.zeros(1, values.dtype)).at[0].multiply(2)
    return Units(outer, inner[:, None], -inner * between)


@partial(jax.jit, static_argnames=("function", "neurons", "dimensions", "steps", "batch", "points", "rate"))
def fit(
    function: Function,
    keys: Array,
    *,
    neurons: int,
    dimensions: int,
    steps: int = 2000,
    batch: int = 512,
    points: int = 8192,
    rate: float = 3e-2,
) -> Units:
    """Fit sums of `N` sigmoids to a function on the unit cube: Adam on all parameters, then least squares for `α`."""
    # The first units are steep to different degrees and bend at random points of the cube.
    rule = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def solved(units: Units, key: Array) -> Units:
        x = jax.random.uniform(key, (points, dimensions))
        return units._replace(outer=jnp.linalg.lstsq(_activations(units, x), function(x))[0])

    def loss(units: Units, key: Array) -> Array:
        x = jax.random.uniform(key, (batch, dimensions))
        return ((approximate(units, x) - function(x)) ** 2).mean()

    def step(carried: tuple, key: Array) -> tuple[tuple, None]:
        units, state = carried
        updates, state = rule.update(jax.grad(loss)(units, key), state, units)
        return (optax.apply_updates(units, updates), state), None

    def fit_seed(key: Array) -> Units:
        points_key, units_key, batches_key = jax.random.split(key, 3)
        units = solved(_first_units(units_key, neurons, dimensions), points_key)
        trained = jax.lax.scan(step, (units, rule.init(units)), jax.random.split(batches_key, steps))[0][0]
        return solved(trained, points_key)

    return jax.lax.map(fit_seed, keys)


def _first_units(key: Array, neurons: int, dimensions: int) -> Units:
    direction_key, steepness_key, place_key = jax.random.split(key, 3)
    directions = jax.random.normal(direction_key, (neurons, dimensions))
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    widest = 2 * neurons ** (1 / dimensions)
    inner = directions * 2 * widest ** jax.random.uniform(steepness_key, (neurons, 1))
    places = jax.random.uniform(place_key, (neurons, dimensions))
    return Units(jnp.zeros(neurons), inner, -(inner * places).sum(1))


class Errors(NamedTuple):
    """Distances between two functions on the unit cube.

    Args:
        supremum: the largest `|G(x) − f(x)|` that was found.
        root_mean_square: over random points.
    """

    supremum: Float[Array, "*seeds"]
    root_mean_square: Float[Array, "*seeds"]


@partial(jax.jit, static_argnames=("function", "points", "climbers", "steps"))
def errors(
    function: Function, units: Units, key: Array, *, points: int = 16384, climbers: int = 64, steps: int = 100
) -> Errors:
    """Return the distance of sums of sigmoids from a function: `sup |G(x) − f(x)|` (Eq. 2) and the root mean square."""
    # The supremum is looked for from random points, the worst of which climb on along the signs of the gradient; what
    # is found is never more than the supremum, and in many dimensions may be less.
    dimensions = units.inner.shape[-1]
    x = jax.random.uniform(key, (points, dimensions))

    def errors_of_sum(units: Units) -> Errors:
        def error(x: Array) -> Array:
            return jnp.abs(approximate(units, x) - function(x))

        deviations = error(x)

        def climb(carried: tuple[Array, Array], length: Array) -> tuple[tuple[Array, Array], None]:
            place, highest = carried
            # On a tip there is no gradient: who stands there stays.
            upwards = jnp.nan_to_num(jnp.sign(jax.grad(lambda x: error(x).sum())(place)))
            place = jnp.clip(place + length * upwards, 0, 1)
            return (place, jnp.maximum(highest, error(place).max())), None

        lengths = 0.05 * 0.9 ** jnp.arange(steps, dtype=x.dtype)
        start = x[jnp.argsort(deviations)[-climbers:]]
        highest = jax.lax.scan(climb, (start, deviations.max()), lengths)[0][1]
        return Errors(highest, jnp.sqrt((deviations**2).mean()))

    return jax.lax.map(errors_of_sum, units)


class Slope(NamedTuple):
    """A power law `error = c · N^slope`, fitted in logarithms.

    Args:
        slope: the exponent.
        standard_error: of the least-squares fit.
    """

    slope: float
    standard_error: float


def slope(neurons: Float[np.ndarray, "sizes"], error: Float[np.ndarray, "sizes seeds"]) -> Slope:
    """Return the exponent of an error's decrease: the least-squares line through `log error` over `log N`.

    Example:
        >>> import numpy as np
        >>> round(slope(np.array([4.0, 8.0, 16.0]), np.array([[0.5], [0.25], [0.125]])).slope, 6)
        -1.0
    """
    x = np.repeat(np.log(neurons), error.shape[1])
    y = np.log(error).reshape(-1)
    x = x - x.mean()
    exponent = (x @ y) / (x @ x)
    rest = y - y.mean() - exponent * x
    return Slope(float(exponent), float(np.sqrt((rest @ rest) / (len(x) - 2) / (x @ x))))
