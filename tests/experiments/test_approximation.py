"""Universal approximation: sums of sigmoids, their fit, their largest error, and the slope with which it falls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, relative

from experiments.approximation.sigmoids import FUNCTIONS, Errors, Units, approximate, errors, fit, slope, staircase
from experiments.approximation.sigmoids_plot import draw_errors

NOTHING = Units(jnp.zeros((1, 1)), jnp.zeros((1, 1, 3)), jnp.zeros((1, 1)))


@pytest.fixture
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def total(x):
    return x.sum(-1)


def test_sum_is_that_of_every_unit():
    random = np.random.default_rng(0)
    units = Units(*(random.normal(size=shape) for shape in ((5,), (5, 2), (5,))))
    x = random.uniform(size=(7, 2))
    by_hand = [sum(a / (1 + np.exp(-(w @ point + b))) for a, w, b in zip(*units, strict=True)) for point in x]
    close(approximate(jax.tree.map(jnp.asarray, units), jnp.asarray(x)), by_hand)


def test_largest_error_is_climbed_to_where_no_random_point_is():
    """`Σ x` is largest in one corner of the cube, and its mean square is `d/12 + d²/4`."""
    found = errors(total, NOTHING, jax.random.key(0))
    assert float(found.supremum[0]) == 3.0
    assert float(found.root_mean_square[0]) == pytest.approx((3 / 12 + 9 / 4) ** 0.5, rel=0.01)


def test_where_there_is_no_gradient_nothing_climbs():
    """The gradient of `√0` is not a number."""
    found = errors(lambda x: total(x) + jnp.sqrt(total(x - x)), NOTHING, jax.random.key(0))
    highest = jax.random.uniform(jax.random.key(0), (16384, 3)).sum(1).max()
    assert float(found.supremum[0]) == pytest.approx(float(highest))


def test_a_staircase_is_off_by_half_a_step():
    neurons = 5
    units = jax.tree.map(lambda leaf: leaf[None], staircase(total, neurons))
    found = errors(total, units, jax.random.key(0))
    assert float(found.supremum[0]) == pytest.approx(1 / (2 * neurons), rel=1e-3)
    assert float(found.root_mean_square[0]) == pytest.approx(1 / (2 * neurons * 3**0.5), rel=0.02)


@pytest.mark.usefixtures("as_optax_promotes")
def test_a_sum_of_known_units_is_fitted():
    """With inner weights that stand still, what is fitted to a sum of these very units are the sum's own weights."""
    key, known = jax.random.split(jax.random.key(0), 1), jnp.array([2.0, -1.0, 0.5])
    still = {"neurons": 3, "dimensions": 2, "steps": 1, "points": 200, "rate": 0.0}
    first = jax.tree.map(lambda leaf: leaf[0], fit(total, key, **still))

    def function(x):
        return known @ jax.nn.sigmoid(first.inner @ x.T + first.bias[:, None])

    units = fit(function, key, **still)
    close(units.outer[0], known)
    assert float(errors(function, units, jax.random.key(1), points=1000).supremum[0]) < 1e-10


@pytest.mark.usefixtures("as_optax_promotes")
def test_outer_weights_are_the_best_for_the_inner_ones():
    key = jax.random.key(2)
    units = fit(FUNCTIONS["cone"], key[None], neurons=5, dimensions=2, steps=20, points=300)
    x = np.asarray(jax.random.uniform(jax.random.split(key, 3)[0], (300, 2)))
    outer, inner, bias = (np.asarray(leaf[0]) for leaf in units)
    activations = 1 / (1 + np.exp(-(x @ inner.T + bias)))
    best = np.linalg.lstsq(activations, np.linalg.norm(x - 1 / 3, axis=1), rcond=None)[0]
    relative(outer, best, within=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("as_optax_promotes")
def test_training_the_inner_weights_helps():
    keys = jax.random.split(jax.random.key(0), 3)
    worst, best = (
        errors(
            FUNCTIONS["wave"],
            fit(FUNCTIONS["wave"], keys, neurons=6, dimensions=2, steps=steps, points=500),
            jax.random.key(1),
            points=1000,
        ).root_mean_square.mean()
        for steps in (1, 300)
    )
    assert best < 0.7 * worst


def test_functions_are_what_their_names_say():
    corner = jnp.ones((1, 4))
    assert float(FUNCTIONS["wave"](corner)[0]) == pytest.approx(np.sin(4 * np.pi), abs=1e-12)
    assert float(FUNCTIONS["bump"](corner)[0]) == pytest.approx(np.exp(-2.0))
    assert float(FUNCTIONS["cone"](corner)[0]) == pytest.approx(4 / 3)


@pytest.mark.parametrize("exponent", [-0.5, -2.0])
def test_slope_of_a_power_law_is_its_exponent(exponent):
    neurons = np.array([4.0, 8.0, 32.0])
    found = slope(neurons, 3 * neurons[:, None] ** exponent * np.ones(2))
    assert found.slope == pytest.approx(exponent) and found.standard_error < 1e-12


def test_error_of_a_slope_is_that_of_least_squares():
    """Two seeds a factor `e^±t` apart at each of two sizes: the rest is `4 t²` over `4 − 2` degrees of freedom."""
    t, neurons = 0.1, np.array([1.0, np.e**2])
    found = slope(neurons, np.exp([[t, -t], [t - 1, -t - 1]]))
    assert found.slope == pytest.approx(-0.5)
    assert found.standard_error == pytest.approx((4 * t**2 / 2 / 4) ** 0.5)


def test_picture_has_a_column_for_each_dimension():
    one = Errors(np.array([[0.4, 0.5], [0.1, 0.2]]), np.array([[0.1, 0.1], [0.05, 0.05]]))
    figure = draw_errors({1: {"wave": one}, 2: {"wave": one}}, np.array([4.0, 8.0]))
    left, right, below, _ = figure.axes
    assert (left.get_title(), right.get_title()) == ("1 dimension", "2 dimensions")
    for axes, expected in ((left, [0.2**0.5, 0.02**0.5]), (below, [0.1, 0.05])):
        errors, rate = (line.get_ydata() for line in axes.lines)
        close(errors, expected)
        close(rate[1] / rate[0], 0.5**0.5)
