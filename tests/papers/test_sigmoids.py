"""Universal approximation: sums of sigmoids, their fit, and their largest error."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, relative

import duat_jax as duat
from duat_jax.papers import (
    FUNCTIONS,
    ApproximationErrors,
    SigmoidSum,
    approximation_errors,
    fit_sigmoids,
    staircase,
)
from duat_jax.papers.validation import another_kind, bad_number, many_keys, one_key, returns, too_small
from duat_jax.plots import draw_approximation_errors

NOTHING = SigmoidSum(jnp.zeros((1, 1)), jnp.zeros((1, 1, 3)), jnp.zeros((1, 1)))


def total(x):
    return x.sum(-1)


def test_sum_is_that_of_every_unit():
    random = np.random.default_rng(0)
    units = SigmoidSum(*(random.normal(size=shape) for shape in ((5,), (5, 2), (5,))))
    x = random.uniform(size=(7, 2))
    by_hand = [sum(a / (1 + np.exp(-(w @ point + b))) for a, w, b in zip(*units, strict=True)) for point in x]
    close(jax.tree.map(jnp.asarray, units)(jnp.asarray(x)), by_hand)


def test_largest_error_is_climbed_to_where_no_random_point_is():
    """`Σ x` is largest in one corner of the cube, and its mean square is `d/12 + d²/4`."""
    found = approximation_errors(total, NOTHING, jax.random.key(0))
    assert float(found.supremum[0]) == 3.0
    assert float(found.root_mean_square[0]) == pytest.approx((3 / 12 + 9 / 4) ** 0.5, rel=0.01)


def test_where_there_is_no_gradient_nothing_climbs():
    """The gradient of `√0` is not a number."""
    found = approximation_errors(lambda x: total(x) + jnp.sqrt(total(x - x)), NOTHING, jax.random.key(0))
    highest = jax.random.uniform(jax.random.key(0), (16384, 3)).sum(1).max()
    assert float(found.supremum[0]) == pytest.approx(float(highest))


def test_a_staircase_is_off_by_half_a_step():
    neurons = 5
    units = staircase(total, neurons)
    found = approximation_errors(total, units, jax.random.key(0))
    assert float(found.supremum) == pytest.approx(1 / (2 * neurons), rel=1e-3)
    assert float(found.root_mean_square) == pytest.approx(1 / (2 * neurons * 3**0.5), rel=0.02)


def test_a_sum_of_known_units_is_fitted():
    """With inner weights that stand still, what is fitted to a sum of these very units are the sum's own weights."""
    key, known = jax.random.split(jax.random.key(0), 1), jnp.array([2.0, -1.0, 0.5])
    still = {"neurons": 3, "dimensions": 2, "steps": 1, "points": 200, "rate": 0.0}
    first = jax.tree.map(lambda leaf: leaf[0], fit_sigmoids(total, key, **still))

    def function(x):
        return known @ jax.nn.sigmoid(first.inner @ x.T + first.bias[:, None])

    units = fit_sigmoids(function, key, **still)
    close(units.outer[0], known)
    assert float(approximation_errors(function, units, jax.random.key(1), points=1000).supremum[0]) < 1e-10


def test_outer_weights_are_the_best_for_the_inner_ones():
    key = jax.random.key(2)
    units = fit_sigmoids(FUNCTIONS["cone"], key[None], neurons=5, dimensions=2, steps=20, points=300)
    x = np.asarray(jax.random.uniform(jax.random.split(key, 3)[0], (300, 2)))
    outer, inner, bias = (np.asarray(leaf[0]) for leaf in units)
    activations = 1 / (1 + np.exp(-(x @ inner.T + bias)))
    best = np.linalg.lstsq(activations, np.linalg.norm(x - 1 / 3, axis=1), rcond=None)[0]
    relative(outer, best, within=1e-6)


@pytest.mark.slow
def test_training_the_inner_weights_helps():
    keys = jax.random.split(jax.random.key(0), 3)
    worst, best = (
        approximation_errors(
            FUNCTIONS["wave"],
            fit_sigmoids(FUNCTIONS["wave"], keys, neurons=6, dimensions=2, steps=steps, points=500),
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


def test_several_sums_are_each_evaluated():
    several = jax.tree.map(lambda *leaves: jnp.stack(leaves), staircase(total, 3), staircase(FUNCTIONS["wave"], 3))
    x = jnp.linspace(0, 1, 5)[:, None]
    close(several(x), [staircase(total, 3)(x), staircase(FUNCTIONS["wave"], 3)(x)])


KEYS = jax.random.split(jax.random.key(0), 1)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (
            lambda: fit_sigmoids(total, KEYS, neurons=0, dimensions=2, rate=-1.0, steps=0),
            ["neurons is 0", "steps", "-1.0"],
        ),
        (lambda: fit_sigmoids(lambda x: x, KEYS, neurons=2, dimensions=2), [r"returns \[3, 2\]", r"point, \[3\]"]),
        (
            lambda: fit_sigmoids(lambda x: None, KEYS, neurons=2, dimensions=1),
            ["returns no array at 3 points of 1 dim"],
        ),
        (lambda: staircase(total, -1), ["neurons is -1: give an integer of at least 1"]),
        (lambda: staircase(total, 2, -1.0), ["steepness is -1.0: give a finite number of at least 0"]),
        (lambda: staircase(lambda x: x.sum(), 2), [r"returns \[\] at 3 points"]),
        (lambda: staircase(lambda x: x[:, 0] * x[:, 1], 4), ["a coordinate that points of 1 dimension don't have"]),
        (
            lambda: approximation_errors(lambda x: x[:, 1], staircase(total, 4), KEYS[0]),
            ["a coordinate that points of 1 dimension don't have"],
        ),
        (lambda: fit_sigmoids(lambda x: x[:, 2], KEYS, neurons=2, dimensions=2), ["points of 2 dimensions don't"]),
        (lambda: fit_sigmoids(np.sin, KEYS, neurons=2, dimensions=1), ["computes with NumPy: write it with jax.numpy"]),
        (lambda: fit_sigmoids(lambda x: jnp.log(total(x) - 0.5), KEYS, neurons=2, dimensions=1), ["isn't finite"]),
        (lambda: staircase(lambda x: total(x) * jnp.nan, 2), ["isn't finite everywhere on the cube"]),
        (lambda: approximation_errors(total, NOTHING, KEYS[0], points=0, climbers=0), ["points is 0.*climbers is 0"]),
    ],
)
def test_everything_that_is_wrong_is_named_at_once(ask, named):
    with pytest.raises(duat.InvalidInput) as raised:
        ask()
    assert all(re.search(each, str(raised.value)) for each in named), raised.value


def test_numbers_and_keys_of_another_type_are_named():
    """The suite's own check of annotations would refuse them first."""
    assert too_small(1, points=1.5, batch=True, steps=np.int64(3)) == [
        "points is 1.5: give an integer of at least 1",
        "batch is True: give an integer of at least 1",
    ]
    for wrong in (KEYS[0], jax.random.split(jax.random.key(0), 0), jnp.ones((2, 2), jnp.uint32)):
        assert "jax.random.split(jax.random.key(0), seeds)" in many_keys(wrong)[0]
    for wrong in (0, None, KEYS, jnp.zeros(2, jnp.uint32)):
        assert one_key(wrong) == ["key is no random key: give jax.random.key(0)"]
    assert not one_key(KEYS[0])
    assert "give a function of points" in returns("wave", 1)[0]
    assert returns(lambda x: np.sin(x[:, 0]), 1) == ["the function computes with NumPy: write it with jax.numpy"]
    assert not returns(lambda x: x.at[:, 0].set(1).sum(1), 1)  # what NumPy's arrays haven't
    assert another_kind(SigmoidSum, units=3, others=NOTHING) == ["units is of type int: give a SigmoidSum"]
    assert all(bad_number(rate=rate) for rate in (float("nan"), float("inf"), "a", None)) and not bad_number(rate=0.0)


def test_picture_has_a_column_for_each_dimension():
    one = ApproximationErrors(np.array([[0.4, 0.5], [0.1, 0.2]]), np.array([[0.1, 0.1], [0.05, 0.05]]))
    figure = draw_approximation_errors({1: {"wave": one}, 2: {"wave": one}}, [4, 8])
    left, right, below, _ = figure.axes
    assert (left.get_title(), right.get_title()) == ("1 dimension", "2 dimensions")
    for axes, expected in ((left, [0.2**0.5, 0.02**0.5]), (below, [0.1, 0.05])):
        errors, rate = (line.get_ydata() for line in axes.lines)
        close(errors, expected)
        close(rate[1] / rate[0], 0.5**0.5)
