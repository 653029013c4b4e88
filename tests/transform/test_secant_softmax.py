"""Softmax, log-softmax and logsumexp are carried by logarithmic means, however they are written."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from helpers import close, near, numbers, relative
from jax import lax
from two_inputs import each, logarithmic_weights, secant

import duat_jax as duat


def by_hand(x):
    powers = jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))
    return powers / powers.sum(-1, keepdims=True)


def by_hand_flowing(x):
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def unshifted(x):
    powers = jnp.exp(x)
    return powers / powers.sum(-1, keepdims=True)


def log_sum_exp_by_hand(x):
    largest = lax.stop_gradient(x.max(-1, keepdims=True))
    return jnp.log(jnp.exp(x - largest).sum(-1)) + largest[..., 0]


SOFTMAX = {
    "jax.nn": jax.nn.softmax,
    "by hand": by_hand,
    "by hand, the maximum flows": by_hand_flowing,
    "the power of a logarithm": lambda x: jnp.exp(jax.nn.log_softmax(x)),
}
LOG_SOFTMAX = {
    "jax.nn": jax.nn.log_softmax,
    "what logsumexp leaves": lambda x: x - jax.nn.logsumexp(x, -1, keepdims=True),
    "by hand": lambda x: x - log_sum_exp_by_hand(x)[..., None],
}
LOGSUMEXP = {
    "jax.nn": lambda x: jax.nn.logsumexp(x, -1),
    "by hand": log_sum_exp_by_hand,
    "from log_softmax": lambda x: x[..., 0] - jax.nn.log_softmax(x)[..., 0],
}


def softmax_expected(scores, other, readout):
    """Return the multiplier of `⟨readout, softmax⟩` of one row: `L u − L ΣLu / ΣL`."""
    means, weights = logarithmic_weights(scores, other)
    drift = mpmath.fsum(mean * u for mean, u in zip(means, readout)) / mpmath.fsum(means)
    return [float(mean * (u - drift)) for mean, u in zip(means, map(float, readout))]


def log_softmax_expected(scores, other, readout):
    """Return the multiplier of `⟨readout, log softmax⟩` of one row: `u − Σu · L / ΣL`."""
    _, weights = logarithmic_weights(scores, other)
    return [float(u - sum(map(float, readout)) * weight) for u, weight in zip(map(float, readout), weights)]


def logsumexp_expected(scores, other, readout):
    """Return the multiplier of `readout · logsumexp` of one row: `u L / ΣL`."""
    return [float(readout * weight) for weight in logarithmic_weights(scores, other)[1]]


def rows_of(expected, x, y, readout):
    return np.array([expected(*row) for row in zip(np.asarray(x), np.asarray(y), np.asarray(readout))])


APART = (0.0, 0.3, 0.7, 50.0, 100.0, 1000.0)
ROWS, WIDTH = 3, 5


def scores(dtype, distances=APART):
    """Return two inputs: for each distance a few rows of which the maxima, and some entries, lie so far apart."""
    x, y = (numbers(len(distances), ROWS, WIDTH, key=key) for key in (21, 22))
    for i, apart in enumerate(distances):
        y[i, 0] += apart
        y[i, 1, 2] += apart
        x[i, 1, 3] += apart
    return jnp.array(x, dtype), jnp.array(y, dtype)


def read_out(fn, readout):
    """Return a function's product with as many numbers as it returns."""
    return lambda x: jnp.vdot(readout[..., 0] if fn(x).ndim < readout.ndim else readout, fn(x))


def agree(found, expected, dtype):
    """Assert that multipliers are the same up to what rounding does to the logarithms of the smaller probabilities."""
    size = np.abs(expected).max()
    near(found, expected, within=32 * float(jnp.finfo(dtype).eps) * size)


def agree_with_closed_forms(forms, x, y, readout, dtype):
    """Assert that the multiplier of every spelling is that of the closed form, at every distance."""
    functions = {name: read_out(fn, readout) for name, (fn, _) in forms.items()}
    found, differences = each(functions, dict.fromkeys(forms, x), dict.fromkeys(forms, y))
    for name, (fn, expected) in forms.items():
        numbers_read = readout[..., 0] if fn(x).ndim < readout.ndim else readout
        for i in range(len(x)):
            agree(found.multiplier[name][i], rows_of(expected, x[i], y[i], numbers_read[i]), dtype)
        eps, size = float(jnp.finfo(dtype).eps), np.abs(found.parts[name]).max()
        assert abs(found.parts[name].sum() - differences[name]) <= 32 * eps * size, name
    assert found.completeness.within


CLOSED_FORMS = {
    **{f"softmax, {name}": (fn, softmax_expected) for name, fn in SOFTMAX.items()},
    **{f"log softmax, {name}": (fn, log_softmax_expected) for name, fn in LOG_SOFTMAX.items()},
    **{f"logsumexp, {name}": (fn, logsumexp_expected) for name, fn in LOGSUMEXP.items()},
}


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_softmax_and_its_relatives_are_carried_by_logarithmic_means(dtype):
    (x, y), readout = scores(dtype), numbers(len(APART), ROWS, WIDTH, key=23).astype(dtype)
    agree_with_closed_forms(CLOSED_FORMS, x, y, readout, dtype)


SMALL = {
    "softmax without a shift": (unshifted, softmax_expected),
    "the power of what logsumexp leaves": (
        lambda x: jnp.exp(x - jax.nn.logsumexp(x, -1, keepdims=True)),
        softmax_expected,
    ),
    "the logarithm of softmax": (lambda x: jnp.log(jax.nn.softmax(x)), log_softmax_expected),
    "logsumexp without a shift": (lambda x: jnp.log(jnp.exp(x).sum(-1)), logsumexp_expected),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_a_shift_they_are_too(dtype):
    """Of scores small enough that their powers are numbers."""
    (x, y), readout = scores(dtype, (3.0,)), numbers(1, ROWS, WIDTH, key=23).astype(dtype)
    agree_with_closed_forms(SMALL, x, y, readout, dtype)


def mixed_before_divided(x):
    """Attention whose rows are divided by their sums after the product."""
    weights = jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))
    return (weights @ jnp.eye(5, dtype=x.dtype)) / weights.sum(-1, keepdims=True)


def with_a_reciprocal(x):
    weights = jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))
    return weights * (1 / weights.sum(-1, keepdims=True))


OTHERWISE = {
    "divided after the product": mixed_before_divided,
    "with a reciprocal": with_a_reciprocal,
    "with weights": lambda x: jax.nn.logsumexp(x, -1, b=jnp.arange(1, 6, dtype=x.dtype)),
    "with a mask among its arguments": lambda x: jax.nn.softmax(x, where=jnp.arange(5) < 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_other_spellings_of_softmax_sum_at_any_distance(dtype):
    """They are products of other things, and split in another way."""
    (x, y), readout = scores(dtype), numbers(len(APART), ROWS, WIDTH, key=23).astype(dtype)
    functions = {
        (name, i): lambda x, fn=fn, i=i: read_out(fn, readout[i])(x)
        for name, fn in OTHERWISE.items()
        for i in range(len(APART))
    }
    found, differences = each(functions, *({key: z[key[1]] for key in functions} for z in (x, y)))
    for key, parts in found.parts.items():
        eps, size = float(jnp.finfo(dtype).eps), np.abs(parts).max()
        assert abs(parts.sum() - differences[key]) <= 32 * eps * size, key
        assert np.abs(found.multiplier[key]).max() < 20, key


MASK = jnp.array([[True] * 5, [True, False, True, True, False], [True, False, False, False, False]])
MASKED = {
    "the smallest number": lambda x: jax.nn.softmax(jnp.where(MASK, x, jnp.finfo(x.dtype).min)),
    "minus infinity": lambda x: jax.nn.softmax(jnp.where(MASK, x, -jnp.inf)),
    "the smallest number, added": lambda x: jax.nn.softmax(x + jnp.where(MASK, 0, jnp.finfo(x.dtype).min)),
    "minus infinity, added": lambda x: jax.nn.softmax(x + jnp.where(MASK, 0, -jnp.inf)),
    "minus infinity, by hand": lambda x: by_hand(jnp.where(MASK, x, -jnp.inf)),
    "zeros of the powers": lambda x: jnp.where(MASK, by_hand(jnp.where(MASK, x, -jnp.inf)), 0),
}


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_what_is_masked_has_no_part(dtype):
    (x, y), readout = scores(dtype), numbers(len(APART), ROWS, WIDTH, key=23).astype(dtype)
    functions = {name: read_out(fn, readout) for name, fn in MASKED.items()}
    found, differences = each(functions, dict.fromkeys(MASKED, x), dict.fromkeys(MASKED, y))
    seen, other = (np.where(MASK, z, -np.inf) for z in (x, y))
    for name in MASKED:
        for i in range(len(APART)):
            agree(found.multiplier[name][i], rows_of(softmax_expected, seen[i], other[i], readout[i]), dtype)
        assert not np.asarray(found.parts[name])[:, ~np.asarray(MASK)].any(), name
        relative(found.parts[name].sum(), differences[name], within=1e3 * float(jnp.finfo(dtype).eps))


def test_what_a_moving_mask_takes_or_leaves_is_named_at_the_softmax():
    """However infinity is brought in: by a choice, added, or from another branch."""
    readout = numbers(4, key=61)
    masks = jnp.array([[0, -jnp.inf, 0, 0], [0, 0, -jnp.inf, 0]])
    spellings = {
        "chosen": lambda x: jnp.where(masks[(x[0] > 0).astype(int)] == 0, x, -jnp.inf),
        "added": lambda x: x + jnp.where((masks == 0)[(x[0] > 0).astype(int)], 0, -jnp.inf),
        "read": lambda x: x + masks[(x[0] > 0).astype(int)],
        "branched": lambda x: x + lax.cond(x[0] > 0, lambda: masks[1], lambda: masks[0]),
    }
    x, y = jnp.array([0.5, 1.0, -2.0, 0.3]), jnp.array([-0.5, 2.0, 1.0, 0.1])
    for name, masked in spellings.items():
        found = secant(lambda x, masked=masked: readout @ jax.nn.softmax(masked(x)), x, y)
        assert not np.asarray(found.parts)[[1, 2]].any(), name
        discontinuities = {at.split()[0]: float(part) for at, part in found.discontinuities.items() if part}
        assert discontinuities.keys() == {"softmax"}, name
        close(sum(discontinuities.values()) + found.parts.sum(), found.difference)


@pytest.mark.slow
def test_softmax_goes_over_any_axes():
    x, y, readout = (numbers(2, 3, 2, key=key) for key in (31, 32, 33))
    functions = {
        axes: lambda x, axes=axes: jnp.vdot(readout, jax.nn.softmax(x, axes))
        for axes in [(0,), (1,), (0, 1), (1, 2), (0, 1, 2)]
    }
    found, _ = each(functions, *(dict.fromkeys(functions, jnp.array(z)) for z in (x, y)))
    for axes, multiplier in found.multiplier.items():

        def rows(z, axes=axes):
            moved = np.moveaxis(np.asarray(z), axes, range(3 - len(axes), 3))
            return moved.reshape(-1, int(np.prod(moved.shape[3 - len(axes) :])))

        agree(rows(multiplier), rows_of(softmax_expected, *map(rows, (x, y, readout))), "float64")


def test_a_score_that_isnt_read_takes_part_in_softmax():
    """As attention's sinks: one more score, whose probability is left out."""
    x, y = (z[0] for z in scores("float64", (2.0,)))
    readout = numbers(*x.shape, key=23)
    readout[:, -1] = 0
    found = secant(lambda x: jnp.vdot(readout[:, :-1], jax.nn.softmax(x)[:, :-1]), x, y)
    agree(found.multiplier, rows_of(softmax_expected, x, y, readout), "float64")


def test_of_constant_scores_what_shifts_them_has_no_part():
    constants, readout, u = numbers(3, 5, key=41), numbers(3, 5, key=42), numbers(3, key=43)

    def shifted(x):
        scores = constants - x[:, None]
        powers = jnp.exp(scores)
        softmax = powers / powers.sum(-1, keepdims=True)
        log_softmax = scores - jnp.log(powers.sum(-1, keepdims=True))
        return jnp.vdot(readout, softmax + log_softmax) + u @ (jnp.log(powers.sum(-1)) + x) + u @ x

    close(secant(shifted, *map(jnp.array, (numbers(3, key=44), numbers(3, key=45)))).multiplier, u, layers=10)


def test_the_logarithm_of_one_row_and_the_maximum_of_another_are_no_logsumexp():
    readout = numbers(3, 3, key=51)

    def spread(x, together=True):
        largest = x.max(-1)
        log = jnp.log(jnp.exp(x - largest[:, None]).sum(-1))
        if together:
            return jnp.vdot(readout, log[:, None] + largest)
        return readout.sum(1) @ log + readout.sum(0) @ largest

    x, y = (jnp.array(numbers(3, 3, key=key)) for key in (52, 53))
    close(secant(spread, x, y).multiplier, secant(lambda x: spread(x, False), x, y).multiplier, layers=10)


def test_of_attention_it_is_each_of_its_products_and_its_softmax():
    """Scores, pattern and values of one head of two tokens, by hand."""
    queries, keys, values = (numbers(2, 2, key=key) for key in (1, 2, 3))
    x, y, readout = numbers(2, 2, key=4), numbers(2, 2, key=5), numbers(2, 2, key=6)

    def attention(x):
        return jnp.vdot(readout, jax.nn.softmax((x @ queries) @ (x @ keys).T) @ (x @ values))

    def pattern(x):
        powers = np.exp(x @ queries @ keys.T @ x.T)
        return powers / powers.sum(-1, keepdims=True)

    middle = (x + y) / 2
    on_values = ((pattern(x) + pattern(y)) / 2).T @ readout
    on_pattern = readout @ (middle @ values).T
    two = (z @ queries @ keys.T @ z.T for z in (x, y))
    on_scores = rows_of(softmax_expected, *two, on_pattern)
    on_queries, on_keys = on_scores @ (middle @ keys), on_scores.T @ (middle @ queries)
    expected = on_values @ values.T + on_queries @ queries.T + on_keys @ keys.T
    close(secant(attention, jnp.array(x), jnp.array(y)).multiplier, expected, layers=10)


ONE_ROW = {
    "a quotient": lambda a: jnp.exp(a) / jnp.exp(a).sum(),
    "a quotient along the axis": lambda a: jnp.exp(a) / jnp.exp(a).sum(-1),
    "shifted": lambda a: jnp.exp(a - a.max()) / jnp.exp(a - a.max()).sum(),
    "shifted by a constant": lambda a: (e := jnp.exp(a - lax.stop_gradient(a.max()))) / e.sum(),
    "a difference of logarithms": lambda a: jnp.exp(a - jnp.log(jnp.exp(a).sum())),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_of_a_single_row_the_sum_may_be_a_number(name):
    x, y, readout = (jnp.array(numbers(6, key=key), jnp.float32) for key in (31, 32, 33))
    split = duat.secant(lambda a: ONE_ROW[name](a) @ readout)(3 * x, 3 * y)
    expected = duat.secant(lambda a: jax.nn.softmax(a) @ readout)(3 * x, 3 * y)
    assert not split.notes
    close(split.multiplier, expected.multiplier)
