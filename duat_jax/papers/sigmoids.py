"""Universal approximation: fits of a sum of `N` sigmoids to a function on the unit cube, and their errors."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from duat_jax.papers.validation import another_kind, bad_number, many_keys, one_key, refuse, returns, too_small

Function = Callable[[Array], Array]
"""From points of the unit cube, `[points, dimensions]`, to numbers, `[points]`."""


def _wave(x: Array) -> Array:
    return jnp.sin(2 * jnp.pi * x.sum(-1) / x.shape[-1] ** 0.5)


def _bump(x: Array) -> Array:
    return jnp.exp(-8 * ((x - 0.5) ** 2).mean(-1))


def _cone(x: Array) -> Array:
    return jnp.sqrt(((x - 1 / 3) ** 2).sum(-1))


FUNCTIONS: dict[str, Function] = {"wave": _wave, "bump": _bump, "cone": _cone}
"""Functions on a unit cube of any dimension, by name: `sin(2π Σx/√d)`, which varies along one direction; the analytic
`exp(−8 |x − ½|²/d)`; and the distance `|x − ⅓|`, which has a tip."""


class SigmoidSum(NamedTuple):
    """A sum of `N` sigmoids, `G(x) = Σ_j α_j σ(w_j·x + b_j)`, with `σ` the logistic sigmoid.

    Args:
        outer: `α`, `[neurons]`, or `[seeds, neurons]` of several sums.
        inner: `w`, `[neurons, dimensions]`, or with `seeds` before.
        bias: `b`, `[neurons]`, or with `seeds` before.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> units = duat.papers.SigmoidSum(jnp.array([4.0]), jnp.array([[0.0]]), jnp.array([0.0]))
        >>> units(jnp.array([[0.3]])).tolist()
        [2.0]

    Source: Cybenko, "Approximation by superpositions of a sigmoidal function", 1989.
    """

    outer: Float[Array, "*seeds neurons"]
    inner: Float[Array, "*seeds neurons dimensions"]
    bias: Float[Array, "*seeds neurons"]

    def __call__(self, x: Float[Array, "points dimensions"]) -> Float[Array, "*seeds points"]:
        """Return `G(x)`."""
        if self.bias.ndim > 1:
            return jax.vmap(SigmoidSum.__call__, (0, None))(self, x)
        return _activations(self, x) @ self.outer


def _activations(units: SigmoidSum, x: Array) -> Array:
    return jax.nn.sigmoid(x @ units.inner.T + units.bias)


def staircase(function: Function, neurons: int, steepness: float = 1e9) -> SigmoidSum:
    """Approximate a function of one variable by `N` steps, as in a proof of Cybenko's theorem.

    `G(x) = f(x_1) + Σ_{j>1} (f(x_j) − f(x_{j−1})) σ(s (x − (j − 1)/N))`, with `x_j = (2j − 1)/2N`.

    Args:
        function: from points, `[points, 1]`, to numbers, `[points]`.
        neurons: the number of steps, `N`.
        steepness: the inner weight of a step, `s`.

    Returns:
        The sum. With steps far steeper than `N` its error is at most the largest change of the function within
        `1/2N`.

    Raises:
        InvalidInput: if there is no neuron, the steepness is negative or not finite, or the function doesn't return a
            finite number for each point, or reads a second variable.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> steps = duat.papers.staircase(lambda x: x[:, 0], 2)
        >>> steps(jnp.array([[0.0], [0.4], [0.6], [1.0]])).tolist()
        [0.25, 0.25, 0.75, 0.75]

    Source: Cybenko, "Approximation by superpositions of a sigmoidal function", 1989.
    """
    refuse([*too_small(1, neurons=neurons), *bad_number(steepness=steepness)] or returns(function, 1))
    places = (2 * jnp.arange(1, neurons + 1) - 1) / (2 * neurons)
    values = function(places[:, None])
    # The first unit is the constant `f(x_1)`: a sigmoid of zero is a half.
    inner = jnp.full(neurons, steepness).at[0].set(0)
    between = (jnp.arange(neurons) / neurons).at[0].set(0)
    outer = jnp.diff(values, prepend=jnp.zeros(1, values.dtype)).at[0].multiply(2)
    return SigmoidSum(outer, inner[:, None], -inner * between)


def fit_sigmoids(
    function: Function,
    keys: Key[Array, "seeds"],
    *,
    neurons: int,
    dimensions: int,
    steps: int = 2000,
    batch: int = 512,
    points: int = 8192,
    rate: float = 3e-2,
) -> SigmoidSum:
    """Fit sums of `N` sigmoids to a function on the unit cube, `min Σ_x (G(x) − f(x))²`.

    Least squares for the outer weights, Adam on all parameters with new points in every step, then least squares again.
    In double precision (`jax.enable_x64`) the least squares tell more neurons apart, and fits are nearer.

    Args:
        function: from points of the cube, `[points, dimensions]`, to numbers, `[points]`, written with `jax.numpy`.
        keys: a random key for each fit, `[seeds]`, such as `jax.random.split(jax.random.key(0), 5)`.
        neurons: the number of sigmoids, `N`.
        dimensions: that of the cube.
        steps: number of steps of Adam.
        batch: number of points in a step.
        points: number of points of the least squares.
        rate: the highest learning rate, from which it falls as a cosine.

    Returns:
        A sum for each key; every array of it has an axis of `seeds` first.

    Raises:
        InvalidInput: if a size isn't a positive integer, the rate is negative or not finite, `keys` is a single key, or
            the function doesn't return a finite number for each point, or reads more variables.

    Example:
        >>> import duat_jax as duat, jax
        >>> wave, keys = duat.papers.FUNCTIONS["wave"], jax.random.split(jax.random.key(0), 2)
        >>> with jax.enable_x64(True):
        ...     units = duat.papers.fit_sigmoids(wave, keys, neurons=8, dimensions=1, steps=20, points=64)
        ...     found = duat.papers.approximation_errors(wave, units, jax.random.key(1), points=64)
        ...     bool((found.supremum < 0.2).all())
        True

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Eq. 1–2; Cybenko 1989; the rate at which the root mean
        square can fall is Barron's, `N^{−1/2}`, "Universal approximation bounds for superpositions of a sigmoidal
        function", 1993.
    """
    wrong = too_small(1, neurons=neurons, dimensions=dimensions, steps=steps, batch=batch, points=points)
    wrong += many_keys(keys) + bad_number(rate=rate)
    refuse(wrong or returns(function, dimensions))
    with jax.numpy_dtype_promotion("standard"):  # as optax needs it
        return _fit(function, keys, neurons, dimensions, steps, batch, points, rate)


@partial(jax.jit, static_argnums=(0, 2, 3, 4, 5, 6, 7))
def _fit(
    function: Function,
    keys: Array,
    neurons: int,
    dimensions: int,
    steps: int,
    batch: int,
    points: int,
    rate: float,
) -> SigmoidSum:
    rule = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def solved(units: SigmoidSum, key: Array) -> SigmoidSum:
        x = jax.random.uniform(key, (points, dimensions))
        return units._replace(outer=jnp.linalg.lstsq(_activations(units, x), function(x))[0])

    def loss(units: SigmoidSum, key: Array) -> Array:
        x = jax.random.uniform(key, (batch, dimensions))
        return ((units(x) - function(x)) ** 2).mean()

    def step(carried: tuple, key: Array) -> tuple[tuple, None]:
        units, state = carried
        updates, state = rule.update(jax.grad(loss)(units, key), state, units)
        return (optax.apply_updates(units, updates), state), None

    def fit_seed(key: Array) -> SigmoidSum:
        points_key, units_key, batches_key = jax.random.split(key, 3)
        units = solved(_first_units(units_key, neurons, dimensions), points_key)
        trained = jax.lax.scan(step, (units, rule.init(units)), jax.random.split(batches_key, steps))[0][0]
        return solved(trained, points_key)

    return jax.lax.map(fit_seed, keys)


def _first_units(key: Array, neurons: int, dimensions: int) -> SigmoidSum:
    """Draw units that are steep to different degrees and bend at random points of the cube."""
    direction_key, steepness_key, place_key = jax.random.split(key, 3)
    directions = jax.random.normal(direction_key, (neurons, dimensions))
    directions = directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    widest = 2 * neurons ** (1 / dimensions)
    inner = directions * 2 * widest ** jax.random.uniform(steepness_key, (neurons, 1))
    places = jax.random.uniform(place_key, (neurons, dimensions))
    return SigmoidSum(jnp.zeros(neurons), inner, -(inner * places).sum(1))


class ApproximationErrors(NamedTuple):
    """Distances between a sum of sigmoids and a function on the unit cube.

    Args:
        supremum: the largest `|G(x) − f(x)|` that was found, of each sum.
        root_mean_square: over random points, of each sum.
    """

    supremum: Float[Array, "*seeds"]
    root_mean_square: Float[Array, "*seeds"]


def approximation_errors(
    function: Function,
    units: SigmoidSum,
    key: Key[Array, ""],
    *,
    points: int = 16384,
    climbers: int = 64,
    steps: int = 100,
) -> ApproximationErrors:
    """Measure the distance of sums of sigmoids from a function: `sup |G(x) − f(x)|` (Eq. 2) and the root mean square.

    The supremum is looked for from random points, the worst of which climb on along the signs of the gradient. The
    value that is found is never above the supremum; in many dimensions it may be below.

    Args:
        function: from points of the cube, `[points, dimensions]`, to numbers, `[points]`.
        units: a sum, or several with an axis of `seeds` first.
        key: a random key, for the points.
        points: number of random points.
        climbers: number of points that climb.
        steps: number of steps that each climbs.

    Returns:
        Both errors of each sum.

    Raises:
        InvalidInput: if a number isn't a positive integer, the key isn't one random key, `units` isn't a `SigmoidSum`,
            or the function doesn't return a finite number for each point, or reads more variables.

    Example:
        >>> import duat_jax as duat, jax
        >>> line = lambda x: x[:, 0]
        >>> found = duat.papers.approximation_errors(line, duat.papers.staircase(line, 5), jax.random.key(0))
        >>> round(float(found.supremum), 3)
        0.1

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Eq. 2.
    """
    wrong = (
        too_small(1, points=points, climbers=climbers, steps=steps)
        + one_key(key)
        + another_kind(SigmoidSum, units=units)
    )
    refuse(wrong or returns(function, units.inner.shape[-1]))
    if units.bias.ndim == 1:
        several = jax.tree.map(lambda leaf: leaf[None], units)
        return jax.tree.map(lambda error: error[0], _errors(function, several, key, points, climbers, steps))
    return _errors(function, units, key, points, climbers, steps)


@partial(jax.jit, static_argnums=(0, 3, 4, 5))
def _errors(
    function: Function, units: SigmoidSum, key: Array, points: int, climbers: int, steps: int
) -> ApproximationErrors:
    x = jax.random.uniform(key, (points, units.inner.shape[-1]))

    def errors_of_sum(units: SigmoidSum) -> ApproximationErrors:
        def error(x: Array) -> Array:
            return jnp.abs(units(x) - function(x))

        deviations = error(x)

        def climb(carried: tuple[Array, Array], length: Array) -> tuple[tuple[Array, Array], None]:
            place, highest = carried
            # On a tip there is no gradient: a point there stays.
            upwards = jnp.nan_to_num(jnp.sign(jax.grad(lambda x: error(x).sum())(place)))
            place = jnp.clip(place + length * upwards, 0, 1)
            return (place, jnp.maximum(highest, error(place).max())), None

        lengths = 0.05 * 0.9 ** jnp.arange(steps, dtype=x.dtype)
        start = x[jnp.argsort(deviations)[-climbers:]]
        highest = jax.lax.scan(climb, (start, deviations.max()), lengths)[0][1]
        return ApproximationErrors(highest, jnp.sqrt((deviations**2).mean()))

    return jax.lax.map(errors_of_sum, units)
