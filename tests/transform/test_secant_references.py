"""The secant's multiplier is what other ways of splitting a difference say, wherever they say the same."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from helpers import close, numbers, relative
from jax import lax
from two_inputs import each, secant, shapley, slope

import duat_jax as duat

# --- Polynomials: divided differences -------------------------------------------------------------------------------

CUBIC = {
    "powers": lambda x: 2 * x**3 - 3 * x**2 + x / 4 - 5,
    "Horner's scheme": lambda x: ((2 * x - 3) * x + 0.25) * x - 5,
    "products": lambda x: 2 * (x * x * x) - 3 * (x * x) + 0.25 * x - 5,
    "squares": lambda x: 2 * x * jnp.square(x) - 3 * lax.integer_pow(x, 2) + 0.25 * x - 5,
    "numpy's polynomial": lambda x: jnp.polyval(jnp.array([2.0, -3.0, 0.25, -5.0]), x),
    "a sum over a scan": lambda x: lax.scan(lambda c, a: (c * x + a, None), 0.0 * x, jnp.array([2.0, -3, 0.25, -5]))[0],
    "a dot product": lambda x: jnp.stack([x * x * x, x * x, x, jnp.ones_like(x)]) @ jnp.array([2.0, -3.0, 0.25, -5.0]),
}
PAIRS = [("3/2", "-1/4"), ("-2", "7"), ("1/3", "1/3"), ("0", "1/1024"), ("5", "5000001/1000000")]


def divided_difference(polynomial, variable, x, y):
    """Return `(p(x) − p(y)) / (x − y)` as the polynomial that it is, at two rationals."""
    a, b = sympy.symbols("a b")
    quotient, rest = sympy.div(polynomial.subs(variable, a) - polynomial.subs(variable, b), a - b, a, b)
    assert rest == 0
    return float(quotient.subs({a: x, b: y}))


def test_of_a_polynomial_it_is_the_divided_difference():
    z = sympy.Symbol("z")
    pairs = [[sympy.Rational(number) for number in pair] for pair in PAIRS]
    expected = [divided_difference(2 * z**3 - 3 * z**2 + z / 4 - 5, z, *pair) for pair in pairs]
    x, y = (jnp.array([float(pair[side]) for pair in pairs]) for side in (0, 1))
    secants = {name: duat.secant(fn) for name, fn in CUBIC.items()}
    found = jax.jit(lambda x, y: {name: jax.vmap(secant)(x, y) for name, secant in secants.items()})(x, y)
    for name, one in found.items():
        relative(one.multiplier, expected, within=1e-13, message=name)
        assert one.completeness.within.all(), name


def test_of_a_whole_power_it_is_the_sum_of_products_of_powers():
    x, y = np.array([1.5, -2.0, 0.75]), np.array([-0.5, -1.0, 0.75])
    powers = {power: lambda x, power=power: (x**power).sum() for power in (-3, -1, 0, 1, 2, 3, 4, 7)}
    found, _ = each(powers, dict.fromkeys(powers, jnp.array(x)), dict.fromkeys(powers, jnp.array(y)))
    for power, multiplier in found.multiplier.items():
        higher = sum(x**k * y ** (abs(power) - 1 - k) for k in range(abs(power))) + 0 * x
        close(multiplier, higher if power >= 0 else -higher / (x * y) ** -power)


# --- Functions of several inputs: Shapley's value -------------------------------------------------------------------


def as_players(fn, players):
    """Return a function of `players` numbers as one of one vector."""
    return lambda x: fn(*(x[i] for i in range(players)))


M = numbers(3, 3, key=7)
SHAPLEY = {
    "a product": (lambda a, b: a * b, 2),
    "a product of three, two of which stand in a sum": (lambda a, b, c: (a + b) * c, 3),
    "a bilinear form": (lambda *v: jnp.stack(v[:3]) @ M @ jnp.stack(v[3:]), 6),
    "a bilinear form by einsum": (lambda *v: jnp.einsum("i,ij,j->", jnp.stack(v[:3]), M, jnp.stack(v[3:])), 6),
    "an outer product": (lambda *v: (M[:, :2] * jnp.stack(v[:3])[:, None] * jnp.stack(v[3:])).sum(), 5),
    "a quadratic form": (lambda *v: jnp.stack(v) @ M @ jnp.stack(v), 3),
    "gates on what a fixed pattern mixes": (lambda *v: (jnp.stack(v[:3]) * (M @ jnp.stack(v[3:]))).sum(), 6),
    "a convolution": (lambda *v: jnp.convolve(jnp.stack(v[:3]), jnp.stack(v[3:])) @ jnp.arange(5.0), 6),
    "products with shared factors": (lambda a, b, c, d: a * b - 2 * b * c + c * d * 3.0 + d, 4),
    "an interaction written as squares": (lambda a, b: (jnp.square(a + b) - jnp.square(a - b)) / 4, 2),
    "a maximum": (jnp.maximum, 2),
    "a minimum": (jnp.minimum, 2),
    "a quotient": (lambda a, b: a / (3 + b), 2),
    "a power": (lambda a, b: lax.pow(3 + a, b), 2),
    "an angle": (jnp.arctan2, 2),
    "a clamp": (lambda low, x, high: lax.clamp(low - 2.0, x, high + 2.0), 3),
    "a clamp that clamps": (lambda low, x, high: lax.clamp(low, x, high), 3),
    "a maximum of a vector of two": (lambda *v: jnp.stack(v).max(), 2),
    "a minimum of a vector of two": (lambda *v: jnp.stack(v).min(), 2),
    "a product of a vector of two": (lambda *v: jnp.stack(v).prod(), 2),
}


@pytest.mark.slow
def test_of_several_inputs_it_is_shapleys_value():
    drawn = range(2)
    x, y = ({name: numbers(len(drawn), players, key=key) for name, (_, players) in SHAPLEY.items()} for key in (1, 2))
    functions = {name: as_players(*entry) for name, entry in SHAPLEY.items()}
    found, differences = jax.vmap(lambda x, y: each(functions, x, y))(x, y)
    for name, (fn, _) in SHAPLEY.items():
        expected = [shapley(fn, x[name][i], y[name][i]) for i in drawn]
        close(found.parts[name], expected, layers=10)
        close(differences[name], np.sum(expected, 1), layers=10)
    assert found.completeness.within.all() and found.discontinuities == {}


def test_shapleys_value_is_enumerated_rightly():
    values = shapley(lambda a, b, c: a * b * c, [1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    close(values, [1 / 3] * 3)
    close(shapley(lambda a, b: max(a, b), [2.0, 5.0], [1.0, 3.0]), [0.0, 2.0])


# --- Integrated gradients -------------------------------------------------------------------------------------------


def integrated_gradients(fn, x, y, nodes):
    """Return `(x − y) · ∫ ∇fn(y + t (x − y)) dt` by Gauss and Legendre's rule."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    gradients = jax.jit(jax.vmap(lambda point: jax.grad(fn)(y + (point + 1) / 2 * (x - y))))(points)
    return (x - y) * jnp.tensordot(weights / 2, gradients, 1)


def converged(fn, x, y):
    fine, finer = (integrated_gradients(fn, x, y, nodes) for nodes in (24, 48))
    close(fine, finer)
    return finer


QUADRATIC = {
    "a quadratic form": lambda x: x @ M @ x + x.sum(),
    "squares": lambda x: (M @ jnp.square(x)).sum(),
    "a product of two sums": lambda x: (M[0] @ x) * (M[1] @ x),
    "a variance": lambda x: jnp.square(x - x.mean()).mean(),
    "a variance by moments": lambda x: (x * x).mean() - x.mean() ** 2,
}


def test_of_a_quadratic_function_it_is_integrated_gradients():
    x, y = jnp.array(numbers(3, key=3)), jnp.array(numbers(3, key=4))
    found, _ = each(QUADRATIC, dict.fromkeys(QUADRATIC, x), dict.fromkeys(QUADRATIC, y))
    for name, fn in QUADRATIC.items():
        close(found.parts[name], converged(fn, x, y))


def test_of_one_input_it_is_integrated_gradients_whatever_the_function():
    def fn(x):
        return jnp.tanh(x) * jnp.exp(jnp.sin(x)) + jax.nn.gelu(2 * x)

    x, y = jnp.float64(1.5), jnp.float64(-0.5)
    close(secant(fn, x, y).parts, converged(fn, x, y), layers=10)


def test_elsewhere_both_sum_and_are_not_the_same():
    """A product of three, written as that of two times the third, is split into ¼, ¼, ½; on the line into ⅓ each."""

    def fn(x):
        return (x[0] * x[1]) * x[2]

    x, y = jnp.ones(3), jnp.zeros(3)
    close(secant(fn, x, y).parts, jnp.array([0.25, 0.25, 0.5]))
    close(converged(fn, x, y), jnp.array([1, 1, 1]) / 3)


# --- Networks, written out ------------------------------------------------------------------------------------------


def relu(z):
    return np.maximum(z, 0)


def test_of_a_relu_network_it_is_deeplifts_rescale_rule():
    sizes = (4, 8, 6, 1)
    weights = [numbers(b, a, key=a) for a, b in pairwise(sizes)]
    biases = [numbers(b, key=50 + b) for b in sizes[1:]]
    x, y = numbers(4, key=1), numbers(4, key=2)

    def forward(z):
        inside = []
        for weight, bias in zip(weights[:-1], biases[:-1]):
            inside.append(weight @ z + bias)
            z = relu(inside[-1])
        return inside

    multiplier = weights[-1][0]
    for weight, z, other in reversed(list(zip(weights, forward(x), forward(y)))):
        multiplier = weight.T @ (multiplier * slope(relu, lambda z: (z > 0) * 1.0, z, other))

    def network(x):
        for weight, bias in zip(weights[:-1], biases[:-1]):
            x = jax.nn.relu(weight @ x + bias)
        return (weights[-1] @ x + biases[-1])[0]

    close(secant(network, jnp.array(x), jnp.array(y)).multiplier, multiplier)


def binary_maximum(a, a_other, b, b_other):
    """Return the multipliers of `max(a, b)` by enumeration; the derivative where an argument stands still."""
    parts = shapley(np.maximum, [a, b], [a_other, b_other])
    moved = [a - a_other, b - b_other]
    return [part / np.where(change == 0, 1, change) for part, change in zip(parts, moved)]


def test_max_pooling_of_pairs_is_split_between_the_two():
    x, y, readout = numbers(8, key=1), numbers(8, key=2), numbers(4, key=3)

    def pooled(x):
        return readout @ lax.reduce_window(x, -jnp.inf, lax.max, (2,), (2,), "VALID")

    pairs = binary_maximum(x[::2], y[::2], x[1::2], y[1::2])
    expected = np.stack(pairs, -1) * readout[:, None]
    close(secant(pooled, jnp.array(x), jnp.array(y)).multiplier, expected)


@pytest.mark.slow
def test_a_maximum_of_many_is_a_tree_of_maxima_of_two():
    """Every entry's part is at most its own change, none has the other sign, and they sum."""
    shapes = [(3,), (4,), (7,), (2, 3)]
    drawn, other = ({s: jnp.array(numbers(5, *s, key=key)) for s in shapes} for key in (1, 2))
    functions = {s: lambda x: x.reshape(5, -1).max(1).sum() for s in shapes}
    found, differences = each(functions, drawn, other)
    for s in shapes:
        assert ((found.multiplier[s] >= 0) & (found.multiplier[s] <= 1)).all()
        close(found.parts[s].sum(), differences[s])
    # One that is the largest at both has it all; one that is never seen has nothing.
    first = {s: jnp.zeros((5, *s)).at[(slice(None), *(0,) * len(s))].set(1) for s in shapes}
    found, _ = each(functions, *({s: z[s] + far * first[s] for s in shapes} for z, far in ((drawn, 9), (other, 8))))
    for s in shapes:
        close(found.multiplier[s], first[s])
    assert found.discontinuities == {}


def test_of_layer_norm_it_is_squares_mean_and_power():
    x, y, readout = (numbers(5, key=key) for key in (1, 2, 3))
    centre = np.eye(5) - 1 / 5

    def layer_norm(x):
        return readout @ ((x - x.mean()) * lax.rsqrt(jnp.square(x - x.mean()).mean() + 1e-3))

    c, d = centre @ x, centre @ y
    v, w = (c * c).mean(), (d * d).mean()
    scales = [(u + 1e-3) ** -0.5 for u in (v, w)]
    by_scale = (scales[0] - scales[1]) / (v - w) * 2 / 5 * (c + d) / 2
    expected = centre @ (sum(scales) / 2 * readout + readout @ (c + d) / 2 * by_scale)
    close(secant(layer_norm, jnp.array(x), jnp.array(y)).multiplier, expected)


@pytest.mark.slow
def test_of_rms_norm_it_is_squares_mean_and_power():
    x, y, readout = (numbers(5, key=key) for key in (1, 2, 3))

    def rms_norm(x):
        return readout @ (x / jnp.sqrt(jnp.square(x).mean() + 1e-3))

    v, w = (x * x).mean() + 1e-3, (y * y).mean() + 1e-3
    # A quotient is split over both of its arguments.
    inverse = (v**-0.5 + w**-0.5) / 2
    by_root = (v**-0.5 - w**-0.5) / (v**0.5 - w**0.5) * (v**0.5 - w**0.5) / (v - w)
    expected = inverse * readout + readout @ (x + y) / 2 * by_root * 2 / 5 * (x + y) / 2
    close(secant(rms_norm, jnp.array(x), jnp.array(y)).multiplier, expected)


# --- Which spellings say the same -----------------------------------------------------------------------------------

SAME = {
    "a product": [
        lambda a, b: a * b,
        lambda a, b: jnp.stack([a]) @ jnp.stack([b]),
        lambda a, b: (jnp.square(a + b) - jnp.square(a - b)) / 4,
        lambda a, b: jnp.stack([a, b]).prod(),
        lambda a, b: jnp.convolve(jnp.stack([a]), jnp.stack([b]))[0],
    ],
    "a square": [
        lambda a, b: a * a + b,
        lambda a, b: a**2 + b,
        lambda a, b: jnp.square(a) + b,
        lambda a, b: lax.pow(a, 2.0) + b,
    ],
    "a gate": [
        lambda a, b: jax.nn.silu(a) * b,
        lambda a, b: (a * jax.nn.sigmoid(a)) * b,
        lambda a, b: (a / (1 + jnp.exp(-a))) * b,
        lambda a, b: (a * (1 + jnp.tanh(a / 2)) / 2) * b,
    ],
}


def test_spellings_that_say_the_same():
    x, y = jnp.array([1.5, 0.75]), jnp.array([0.25, -2.0])
    functions = {(name, i): as_players(fn, 2) for name, spellings in SAME.items() for i, fn in enumerate(spellings)}
    found, _ = each(functions, dict.fromkeys(functions, x), dict.fromkeys(functions, y))
    for (name, _), multiplier in found.multiplier.items():
        close(multiplier, found.multiplier[name, 0])


def test_spellings_that_do_not():
    """The secant is a property of a program: brackets move parts, and so do parts that cancel."""
    x, y = jnp.ones(3), jnp.zeros(3)
    for fn, parts in [
        (lambda x: (x[0] * x[1]) * x[2], [1 / 4, 1 / 4, 1 / 2]),
        (lambda x: x[0] * (x[1] * x[2]), [1 / 2, 1 / 4, 1 / 4]),
    ]:
        close(secant(fn, x, y).parts, jnp.array(parts))
    a, b = jnp.array([4.0, 9.0]), jnp.array([1.0, 1.0])
    close(secant(lambda x: x[0] * x[1], a, b).parts, jnp.array([15.0, 20.0]))
    # 35 by the logarithms of 4 and 9, instead of by midpoints.
    by_logarithms = 35 * np.log([4, 9]) / np.log(36)
    close(secant(lambda x: jnp.exp(jnp.log(x).sum()), a, b).parts, by_logarithms)
    # What cancels in the value doesn't in the parts.
    cancels = secant(lambda x: x[0] + (x[0] * x[1]) * x[0] - x[0] * (x[1] * x[0]), a, b)
    close(cancels.difference, 3.0)
    assert abs(cancels.parts[1]) < 1e-12
