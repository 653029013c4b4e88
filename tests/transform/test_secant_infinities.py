"""NaN never holds; equal infinities don't move; what no input takes isn't evaluated; nothing finite is dropped."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, make_input, weights_of
from jax import lax
from test_primitives import EXAMPLES as LINEAR
from test_secant_primitives import JUMPING, NONLINEAR, ON_DEVICES, SMOOTH

import duat_jax as duat
from duat_jax.transform.marks import point

EXAMPLES = {name: fn for name, fn in (LINEAR | NONLINEAR | JUMPING).items() if name not in ON_DEVICES}


def numbers_of(secant):
    """Return every number that a secant says but what it says of its marks' own values."""
    if isinstance(secant, duat.results.Secant):
        secant = secant._replace(changes=(), middles=())
    return jax.tree.leaves(secant)


def finite_entries(fn):
    """Return what of a function's result is finite, times as many numbers: as where padding is left out."""

    def read(x):
        result = fn(x)
        return jnp.vdot(weights_of(result.shape, key=5), jnp.where(lax.is_finite(result), result, 0))

    return read


# --- Every primitive ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_primitive_holds_with_a_nan_anywhere():
    """NaN and infinities at one place of both inputs, and of the first alone."""
    x, y, wrong = make_input(), make_input(key=5), (np.nan, np.inf, -np.inf)
    pairs = [(x.at[1, 2].set(v), other) for v in wrong for other in (y, y.at[1, 2].set(v))]

    def every(pair):
        found = {name: duat.secant(finite_entries(fn))(*pair) for name, fn in EXAMPLES.items()}
        return {
            name: (secant.completeness, jnp.array([jnp.isfinite(leaf).all() for leaf in numbers_of(secant)]).all())
            for name, secant in found.items()
        }

    found = jax.jit(lambda pairs: lax.map(every, pairs))(tuple(map(jnp.stack, zip(*pairs))))
    assert {name for name, (completeness, finite) in found.items() if (completeness.holds & ~finite).any()} == set()
    # Most primitives aren't troubled by what is infinite at both inputs and left out of the result.
    assert sum(bool(completeness.within[jnp.array([3, 5])].all()) for completeness, _ in found.values()) > 100


def test_a_multiplier_that_is_infinite_at_a_mark_alone_fails():
    def fn(x):
        unread = point(jnp.where(np.False_, x, 0), "unread")
        return x + 1e200 * (1e200 * unread)

    assert duat.secant(fn)(1.0, 2.0).completeness.verdict == "holds"
    assert duat.secant(fn, at="point")(1.0, 2.0).completeness.verdict == "fails"


ENTRYWISE = {name: (fn, starts) for name, (fn, _, starts) in SMOOTH.items()} | {
    "abs": (jnp.abs, (-1.0, 2.0)),
    "max": (lambda z: jnp.maximum(z, 0.5), (-1.0, 2.0)),
    "min": (lambda z: jnp.minimum(z, 0.5), (-1.0, 2.0)),
    "clamp": (lambda z: jnp.clip(z, -0.5, 0.5), (-1.0, 2.0)),
    "mul": (lambda z: z * z, (-1.0, 2.0)),
    "stop_gradient": (lax.stop_gradient, (-1.0, 2.0)),
    "a quotient of one value": (lambda z: jnp.tanh(z) / z, (-1.0, 2.0)),
    "a choice of one value": (lambda z: jnp.where(z > 0, z, jnp.exp(z) - 1), (-1.0, 2.0)),
}


@pytest.mark.slow
def test_an_entry_that_is_infinite_at_both_inputs_has_no_part_and_changes_no_other():
    def split(fn, starts, infinite):
        pair = [jnp.array([*numbers, *infinite]) for numbers in (starts, starts[::-1])]
        kept = jnp.arange(len(starts) + len(infinite)) < len(starts)
        return duat.secant(lambda z: jnp.where(kept, fn(z), 0).sum())(*pair)

    def every(*infinite):
        return {name: split(*each, infinite) for name, each in ENTRYWISE.items()}

    found, expected = jax.jit(partial(every, np.inf, -np.inf))(), jax.jit(every)()
    for name in found:
        close(found[name].parts, [*expected[name].parts, 0, 0])
        close(found[name].multiplier, [*expected[name].multiplier, 0, 0])
        assert found[name].completeness.verdict == expected[name].completeness.verdict == "holds", name


# --- Every place ----------------------------------------------------------------------------------------------------

KEPT = jnp.array([True, True, False, True])
READOUT = weights_of((4,))


def chosen(x, kept):
    return jnp.where(kept, x, -jnp.inf)


def added(x, kept):
    return x + jnp.where(kept, 0, -jnp.inf).astype(x.dtype)


SPELLINGS = {
    "softmax": lambda scores: jax.nn.softmax(scores) @ READOUT.astype(scores.dtype),
    "logsumexp": jax.nn.logsumexp,
    "log-softmax": lambda scores: jax.nn.log_softmax(scores)[0],
    "by hand": lambda scores: jnp.exp(scores - scores.max())[:2].sum() / jnp.exp(scores - scores.max()).sum(),
    "exponentials": lambda scores: jnp.exp(scores) @ READOUT.astype(scores.dtype),
    "a gate": lambda scores: jax.nn.sigmoid(scores) @ READOUT.astype(scores.dtype),
    "a maximum": lambda scores: jnp.tanh(scores.max()),
    "the largest": lambda scores: jnp.tanh(lax.top_k(scores, 2)[0]).sum(),
}
MASKS = {"chosen": chosen, "added": added}


X, Y = jnp.array([0.3, -1.0, 2.0, 0.7]), jnp.array([1.3, 0.2, -0.4, 0.1])


@jax.jit
def without_what_is_masked():
    return {
        name: duat.secant(lambda kept, read=read: read(jnp.insert(kept, 2, -jnp.inf)))(X[KEPT], Y[KEPT])
        for name, read in SPELLINGS.items()
    }


def split(read, mask, mark):
    """Return a secant over masked scores, and the parts of what was masked."""
    if mark == "argument":
        bias = jnp.where(KEPT, 0, -jnp.inf)
        found = duat.secant(lambda pair: read(pair[0] + pair[1]))((X, bias), (Y, bias))
        return found, found.parts[0] + found.parts[1]
    put = {"none": lambda s, _: s, "point": duat.point, "hold": duat.hold}[mark]
    found = duat.secant(lambda x: read(put(mask(x, KEPT), "scores")), at="point", held=mark == "hold")(X, Y)
    return found, found.moved["scores"] if mark == "hold" else found.parts


@pytest.mark.parametrize("mark", ["none", "point", "hold", "argument"])
def test_masked_scores_have_no_part_wherever_they_are_read(mark):
    masks = {"argument": {"added": added}}.get(mark, MASKS)
    found = jax.jit(
        lambda: {(name, m): split(read, mask, mark) for name, read in SPELLINGS.items() for m, mask in masks.items()}
    )()
    for name, alone in without_what_is_masked().items():
        for mask in masks:
            secant, parts = found[name, mask]
            assert secant.completeness.verdict == alone.completeness.verdict == "holds", name
            close(parts, jnp.insert(alone.parts, 2, 0))
            for contribution in secant.contributions.points.values():
                close(contribution, secant.parts)
            assert all(jnp.isfinite(leaf).all() for leaf in numbers_of(secant))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_what_a_moving_mask_takes_at_a_mark_is_named_at_the_softmax(mask, held):
    def fn(x):
        scores = MASKS[mask](x, x < 1)
        return SPELLINGS["softmax"](duat.hold(scores, "scores") if held else duat.point(scores, "scores"))

    found = duat.secant(fn, at="hold" if held else "point", held=held)(X, Y)
    assert found.completeness.verdict == "holds"
    assert abs(sum(found.discontinuities.values())) > 0.01
    (contribution,) = (found.contributions.held if held else found.contributions.points).values()
    assert not contribution[jnp.array([0, 2])].any()
    close(contribution, found.moved["scores"] if held else found.parts)


@pytest.mark.parametrize("form", [duat.decompose, lambda fn, x: duat.contributions(duat.record(fn)(x))])
def test_an_additive_mask_among_the_arguments_has_no_part_in_a_closed_form(form):
    x, bias = make_input(), jnp.where(jnp.tri(4) > 0, 0, -jnp.inf)

    def fn(pair):
        x, bias = pair
        return (duat.hold(jax.nn.softmax(x @ x.T + bias), "pattern") @ x).sum()

    parts = form(fn, (x, bias))
    assert parts.completeness.verdict == "holds"
    assert not parts.input[1].any()
    close(parts.input[0], duat.decompose(lambda x: fn((x, bias)), x).input)


# --- What no input takes, what is large, what is empty --------------------------------------------------------------


BRANCHES = [
    lambda x: (x * x).sum(),
    lambda x: jnp.sin(x).sum(),
    lambda x: jnp.log(x - 99).sum(),
]


@pytest.mark.parametrize("taken", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_branch_that_no_input_takes_is_not_evaluated(taken, jitted):
    x, y = jnp.array([0.3, -1.0]), jnp.array([1.3, 0.2])
    secant = duat.secant(lambda pair: lax.switch(pair[0], BRANCHES, pair[1]))
    found = (jax.jit(secant) if jitted else secant)((taken[0], x), (taken[1], y))
    slopes = {0: x + y, 1: (jnp.sin(x) - jnp.sin(y)) / (x - y)}
    middle = {k: (BRANCHES[k](x) + BRANCHES[k](y)) / 2 for k in (0, 1)}
    close(found.multiplier[1], (slopes[taken[0]] + slopes[taken[1]]) / 2)
    close(sum(found.discontinuities.values()), middle[taken[0]] - middle[taken[1]])
    assert found.completeness.verdict == "holds"


def test_an_error_that_neither_input_raises_is_not_raised():
    x, y = jnp.array([0.3, -1.0]), jnp.array([1.3, 0.2])
    found = duat.secant(lambda x: jnp.square(eqx.error_if(x, x.sum() > 9, "too large")).sum())(x, y)
    close(found.multiplier, x + y)
    assert found.completeness.verdict == "holds"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_jump_of_any_finite_size_is_a_part(dtype):
    limit = float(jnp.finfo(dtype).max)
    sizes = jnp.array([1e-2, 1.0, 5100, limit**0.5, limit**0.75, limit / 2, limit], dtype)
    x, y = jnp.array(1.0, dtype), jnp.array(-1.0, dtype)
    for read in (lambda x, high: jnp.where(x > 0, high, 0), lambda x, high: high * (x > 0).astype(x.dtype)):
        found = jax.jit(jax.vmap(lambda high, read=read: duat.secant(lambda x: read(x, high))(x, y)))(sizes)
        np.testing.assert_array_equal(sum(found.discontinuities.values()), sizes)
        assert found.completeness.within.all()


EMPTY = {
    "sum": (lambda x: x.sum(1), (3, 0)),
    "maximum": (lambda x: jnp.max(x, axis=1, initial=1.0), (3, 0)),
    "maximum, of nothing": (lambda x: jnp.maximum(lax.reduce_max(x, (1,)), 2.0), (3, 0)),
    "minimum": (lambda x: jnp.min(x, axis=1, initial=1.0), (3, 0)),
    "product": (lambda x: jnp.prod(x, axis=1), (3, 0)),
    "product of everything": (lambda x: jnp.prod(x), (0,)),
    "softmax": (lambda x: jax.nn.softmax(x, axis=1), (0, 3)),
    "softmax by hand": (lambda x: jnp.exp(x) / jnp.exp(x).sum(1, keepdims=True), (3, 0)),
    "logsumexp by hand": (lambda x: jnp.maximum(jnp.log(jnp.exp(x).sum(1)), 2.0), (3, 0)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=1), (0, 3)),
    "sort": (lambda x: jnp.sort(x, axis=1), (3, 0)),
    "top_k": (lambda x: lax.top_k(x, 0)[0], (3, 2)),
    "argmax": (lambda x: x[jnp.argmax(x, axis=1)], (0, 3)),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), (3, 0)),
    "product of matrices": (lambda x: x @ x.T, (3, 0)),
    "scan": (lambda x: lax.scan(lambda c, row: (jnp.tanh(c + row.sum()), c), x.sum(), x)[0], (0, 3)),
    "window": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 1), "VALID"), (3, 0)),
    "gather": (lambda x: x[jnp.zeros((0,), int)] * x[:0], (3, 2)),
    "where": (lambda x: jnp.where(x > 0, x, x * x), (3, 0)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_axis_without_entries_has_no_part(name):
    fn, shape = EMPTY[name]
    found = duat.secant(lambda x: fn(x).sum())(jnp.ones(shape), 2 * jnp.ones(shape))
    assert found.multiplier.shape == shape and not found.parts.any()
    assert found.completeness.within and not any(found.discontinuities.values())
