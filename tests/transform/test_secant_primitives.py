"""The secant of every primitive of JAX: exact, or refused by name; of near points, as exact as the dtype allows."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from helpers import close, make_input, near, weights_of
from jax import lax
from jax.interpreters import ad
from test_primitives import EXAMPLES as LINEAR
from test_primitives import OF_OTHER_VERSIONS, W, names_of
from two_inputs import each

import duat_jax as duat

# --- The registry ---------------------------------------------------------------------------------------------------

P = 1.0 + jnp.square(W[:4])
"""Positive numbers."""


def inside(x):
    """Return numbers between −0.9 and 0.9."""
    return 0.9 * jnp.tanh(x)


NONLINEAR = {
    "abs": jnp.abs,
    "acos": lambda x: jnp.arccos(inside(x)),
    "acosh": lambda x: jnp.arccosh(1.1 + x * x),
    "asin": lambda x: jnp.arcsin(inside(x)),
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "atan2": lambda x: jnp.arctan2(x, 0.5 + x[::-1]),
    "atanh": lambda x: jnp.arctanh(inside(x)),
    "bessel_i0e": jax.scipy.special.i0e,
    "bessel_i1e": jax.scipy.special.i1e,
    "cbrt": lambda x: lax.cbrt(x),
    "clamp": lambda x: lax.clamp(x[0, 0] - 1, x, jnp.abs(x[::-1])),
    "cos": jnp.cos,
    "cosh": jnp.cosh,
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, axis=1),
    "cummax": lambda x: lax.cummax(x, axis=1, reverse=True),
    "cummin": lambda x: lax.cummin(x),
    "cumprod": lambda x: jnp.cumprod(x, 1),
    "digamma": lambda x: lax.digamma(0.3 + x * x),
    "div": lambda x: x / (3 + x[::-1]),
    "erf": lax.erf,
    "erf_inv": lambda x: lax.erf_inv(inside(x)),
    "erfc": lax.erfc,
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "igamma": lambda x: lax.igamma(P, 0.3 + x * x),
    "igammac": lambda x: lax.igammac(P, 0.3 + x * x),
    "integer_pow": lambda x: x**3 + (2 + jnp.abs(x)) ** -2,
    "lgamma": lambda x: lax.lgamma(0.3 + x * x),
    "log": lambda x: jnp.log(0.1 + x * x),
    "log1p": lambda x: jnp.log1p(x * x),
    "logistic": jax.nn.sigmoid,
    "max": lambda x: jnp.maximum(x, x[::-1] - 0.1),
    "min": lambda x: jnp.minimum(x, x[::-1] - 0.1),
    "mul": lambda x: x * x[::-1],
    "dot_general": lambda x: x @ x.T,
    "conv_general_dilated": lambda x: jnp.convolve(x[0], x[1]),
    "ragged_dot_general": lambda x: lax.ragged_dot(x, jnp.stack([W, 2 * W]) * x[0, 0], jnp.array([1, 3])),
    "polygamma": lambda x: lax.polygamma(jnp.ones((4, 6)), 0.3 + x * x),
    "pow": lambda x: lax.pow(0.3 + x * x, x[::-1]),
    "reduce_max": lambda x: x.max(1),
    "reduce_min": lambda x: x.min(0),
    "reduce_prod": lambda x: x.prod(1),
    "reduce_window_max": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (2, 1), "SAME"),
    "reduce_window_min": lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2, 2), (1, 2), "VALID"),
    "regularized_incomplete_beta": lambda x: lax.betainc(P, 2 * P, jax.nn.sigmoid(x)),
    "rsqrt": lambda x: lax.rsqrt(0.1 + x * x),
    "scan": lambda x: lax.scan(lambda c, row: (jnp.tanh(c + row), c * row), jnp.zeros(6), x)[1],
    "sin": jnp.sin,
    "sinh": jnp.sinh,
    "sqrt": lambda x: jnp.sqrt(0.1 + x * x),
    "square": lambda x: lax.square(x),
    "stop_gradient": lambda x: x * lax.stop_gradient(x),
    "tan": lambda x: jnp.tan(inside(x)),
    "tanh": jnp.tanh,
}
if hasattr(lax, "polynomial_p"):  # primitives of newer versions
    NONLINEAR |= {
        "log2": lambda x: lax.log2(0.1 + x * x),
        "one_minus_square": lax.one_minus_square,
        "polynomial": lambda x: lax.polynomial(x, [0.5, -1.0, 0.0, 2.0]),
    }
JUMPING = {
    "nextafter": lambda x: jnp.nextafter(x, 1.0),
    "bitcast_convert_type": lambda x: (lax.bitcast_convert_type(x, jnp.int64) % 7).astype(x.dtype),
    "argmax": lambda x: jnp.argmax(x, 1).astype(x.dtype),
    "argmin": lambda x: jnp.argmin(x, 1).astype(x.dtype),
    "ceil": jnp.ceil,
    "cond": lambda x: lax.cond(x[0, 0] > 0, lambda x: x @ x.T, lambda x: 2 * x[:, :4], x),
    "eq": lambda x: (jnp.floor(x) == 0).astype(x.dtype),
    "floor": jnp.floor,
    "ge": lambda x: (x >= 0.1).astype(x.dtype),
    "gt": lambda x: (x > 0.1).astype(x.dtype),
    "is_finite": lambda x: jnp.isfinite(x / jnp.maximum(x, 0)).astype(x.dtype),
    "le": lambda x: (x <= 0.1).astype(x.dtype),
    "lt": lambda x: (x < 0.1).astype(x.dtype),
    "and": lambda x: ((x < 0.1) & (x > -0.9)).astype(x.dtype),
    "ne": lambda x: (jnp.floor(x) != 0).astype(x.dtype),
    "not": lambda x: (~(x < 0.1)).astype(x.dtype),
    "or": lambda x: ((x < 0.1) | (x > 0.9)).astype(x.dtype),
    "rem": lambda x: jnp.fmod(x, 0.7),
    "round": jnp.round,
    "select_n": lambda x: jnp.where(x > 0.1, x * x, -x),
    "scatter-max": lambda x: (
        x.at[jnp.array([0, 1, 1, 9])].max(2 * x) + x.at[jnp.array([0, 9, -7])].max(x[1:], mode="clip")
    ),
    "scatter-min": lambda x: x.at[jnp.array([0, 1, 1, 9])].min(2 * x),
    "sign": jnp.sign,
    "sort": lambda x: jnp.sort(x, 0),
    "top_k": lambda x: lax.top_k(x, 3)[0],
    "xor": lambda x: ((x < 0.1) ^ (x > -0.9)).astype(x.dtype),
    "gather": lambda x: x[jnp.argmax(x, 0)],
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (jnp.argmax(x[:, 0]), 0), (2, 3)),
}


def read_out(fn):
    """Return a function's product with as many numbers as it returns."""

    def product(x):
        result = fn(x)
        return jnp.vdot(weights_of(result.shape, key=5), result)

    return product


@pytest.mark.slow
@pytest.mark.parametrize("examples", [NONLINEAR, JUMPING], ids=["smooth or bent", "jumping"])
def test_primitives_that_are_not_linear_have_their_secant(examples):
    x, y = make_input(), make_input(key=5)
    assert {name: name in names_of(fn, x) for name, fn in examples.items()} == dict.fromkeys(examples, True)
    functions = {name: read_out(fn) for name, fn in examples.items()}
    found, differences = each(functions, *(dict.fromkeys(examples, z) for z in (x, y)))
    assert found.completeness.within
    if examples is JUMPING:
        assert sum(bool(part != 0) for part in found.discontinuities.values()) > len(JUMPING) / 2
    else:
        assert found.discontinuities == {}
        for name, parts in found.parts.items():
            close(parts.sum(), differences[name], layers=10)


def segment_softmax(x):
    """Return the softmax over each of three groups, one of them empty, as libraries for graphs write it."""
    largest = jax.ops.segment_max(x, GROUPS, 3)
    powers = jnp.exp(x - largest[GROUPS])
    return powers / jax.ops.segment_sum(powers, GROUPS, 3)[GROUPS]


GROUPS = jnp.array([0, 2, 0, 2, 2, 0])
CUMULATED = {
    "cumlogsumexp": (lax.cumlogsumexp, jax.nn.logsumexp),
    "cumlogsumexp, backwards": (lambda x: lax.cumlogsumexp(x, reverse=True)[::-1], lambda x: jax.nn.logsumexp(x)),
    "cumprod": (jnp.cumprod, jnp.prod),
    "cummax": (lax.cummax, jnp.max),
    "cummin": (lax.cummin, jnp.min),
}


@pytest.mark.parametrize("name", CUMULATED)
def test_what_is_cumulated_is_what_is_reduced_of_every_prefix(name):
    cumulated, reduced = CUMULATED[name]
    x, y, weights = make_input()[0], make_input(key=5)[0], weights_of((6,), key=5)
    if "backwards" in name:
        x, y = x[::-1], y[::-1]

    def prefixes(x):
        x = x[::-1] if "backwards" in name else x
        return jnp.stack([reduced(x[: k + 1]) for k in range(len(x))])

    found, expected = (duat.secant(lambda x, fn=fn: jnp.vdot(weights, fn(x)))(x, y) for fn in (cumulated, prefixes))
    close(found.multiplier, expected.multiplier)
    assert found.completeness.verdict == expected.completeness.verdict == "holds"


def test_a_softmax_over_segments_is_split_and_what_is_the_largest_is_named():
    x, y, weights = make_input()[0], make_input(key=5)[0], weights_of((6,), key=5)
    found = duat.secant(lambda x: jnp.vdot(weights, segment_softmax(x)))(x, y)
    assert found.completeness.verdict == "holds"
    assert [name.split()[0] for name in found.discontinuities] == ["scatter-max"]
    # By another route, of near points: the gradient of a softmax over each group.
    middle, step = (x + y) / 2, 1e-5 * (x - y)

    def grouped(x):
        rows = [jax.nn.softmax(x[group == GROUPS]) @ weights[group == GROUPS] for group in (0, 2)]
        return sum(rows)

    close_by = duat.secant(lambda x: jnp.vdot(weights, segment_softmax(x)))(middle + step, middle - step)
    near(close_by.multiplier, jax.grad(grouped)(middle), within=1e-8)


ON_DEVICES = frozenset(
    ("psum", "psum_invariant", "pvary", "ppermute", "all_gather", "all_to_all", "reduce_scatter", "shard_map")
)
"""Linear primitives whose examples divide an array over devices by hand."""


@pytest.mark.slow
def test_the_secant_of_a_linear_primitive_is_its_transpose():
    x, y = make_input(), make_input(key=5)
    functions = {name: read_out(fn) for name, fn in LINEAR.items() if name not in ON_DEVICES}
    found, _ = each(functions, *(dict.fromkeys(functions, z) for z in (x, y)))
    # By another route: entry by entry of the input.
    entries = jnp.eye(24).reshape(24, 4, 6)
    columns = jax.jit(lambda: {name: lax.map(fn, entries) - fn(0 * x) for name, fn in functions.items()})()
    for name, multiplier in found.multiplier.items():
        close(multiplier, columns[name], layers=20)
    assert found.completeness.within and not any(found.discontinuities.values())


def test_arrays_divided_by_hand_are_refused_by_name():
    for name in ON_DEVICES:
        with pytest.raises(duat.DuatError, match="shard_map"):
            duat.secant(read_out(LINEAR[name]))(make_input(), make_input(key=5))


def square_matrix(x):
    return x @ x.T + 9 * jnp.eye(4)


REFUSED = {
    "cholesky": lambda x: jnp.linalg.cholesky(square_matrix(x)),
    "custom_linear_solve": lambda x: jnp.linalg.solve(square_matrix(x), jnp.ones(4)),
    "eigh": lambda x: jnp.linalg.eigh(square_matrix(x))[0],
    "lu": lambda x: lax.linalg.lu(square_matrix(x))[0],
    "pow": lambda x: lax.pow(1 + x * x, (x > 0).astype(int)),
    "qr": lambda x: jnp.linalg.qr(x)[1],
    "svd": lambda x: jnp.linalg.svd(x)[1],
    "random_gamma": lambda x: jax.random.gamma(jax.random.key(0), 1 + x * x),
    "reduce": lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + a, (0,)),
    "reduce_window": lambda x: lax.reduce_window(x, 0.0, lambda a, b: a * b + a, (2, 2), (1, 1), "VALID"),
    "scatter-mul": lambda x: x.at[0].multiply(x[1]),
    "triangular_solve": lambda x: jax.scipy.linalg.solve_triangular(x[:, :4] + 9 * jnp.eye(4), jnp.ones(4)),
    "tridiagonal_solve": lambda x: lax.linalg.tridiagonal_solve(x[0], 9 + x[1], x[2], jnp.ones((6, 1))),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c * c + 1, x),
    "approx_top_k": lambda x: lax.approx_max_k(x, 2)[0],
    "pure_callback": lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) * x,
    "complex": lambda x: jnp.abs(lax.complex(x, x)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_secant_here_is_refused_by_name_and_line(name):
    fn = REFUSED[name]
    with pytest.raises(duat.DuatError, match=rf"(?s){__file__}:\d+ .*{name}.*: .{{20}}"):
        duat.secant(lambda x: fn(x).sum())(make_input(), make_input(key=5))


NO_NUMBERS_FLOW = frozenset(
    (
        *("eq_to", "le_to", "lt_to", "mulhi", "shift_left", "shift_right_arithmetic", "shift_right_logical"),
        *("random_bits", "random_fold_in", "random_seed", "random_split", "random_unwrap", "random_wrap"),
    )
)
"""Of whole numbers and keys alone."""

OF_JAX_ITSELF = frozenset(
    (
        *("accum_grad_in_ref", "addupdate", "box_get", "box_set", "empty_ref", "free_ref", "freeze", "get", "swap"),
        *("log_extend", "log_read", "new_box", "new_log", "new_ref", "run_state"),
        *("call_hi_primitive", "composite", "custom_vmap_call", "dce_sink", "linear_call", "remat_opt", "stage", "tie"),
        *("check", "debug_callback", "debug_print", "ffi_call", "io_callback", "inspect_sharding"),
        *("from_edtype", "to_edtype", "preduced", "ragged_all_to_all", "reduced_vary_cast_p", "unreduced_psum"),
        *("unreduced_reduce_scatter", "vary_unreduced_cast_p", "reduced_vary_cast", "vary_unreduced_cast"),
        *("relayout", "pbroadcast_dynamic"),
        *("global_array_to_host_local_array", "host_local_array_to_global_array"),
        *("select_and_gather_add", "select_and_scatter_add", "eig"),
    )
)
"""State, other hosts, what differentiation makes, and what is complex: in no function of a pytree to a number."""


def test_every_primitive_that_jax_can_differentiate_has_a_secant_or_is_refused():
    names = {
        p.name for p, rule in ad.primitive_jvps.items() if getattr(rule, "func", rule).__module__.startswith("jax")
    }
    assert len(names) > 150
    known = {*NONLINEAR, *JUMPING, *LINEAR, *OF_OTHER_VERSIONS, *REFUSED, *NO_NUMBERS_FLOW, *OF_JAX_ITSELF}
    assert names - known == set()


# --- Near two equal points ------------------------------------------------------------------------------------------

ANYWHERE, POSITIVE, ABOVE_ONE = (-2.3, -0.4, 1e-9, 0.3, 1.7, 6.0), (0.05, 0.4, 1.3, 6.0), (1.1, 1.8, 3.0, 7.0)
TAILS, HUGE = (*ANYWHERE, -20.0, 3.003, 40.0), (*ANYWHERE, -3e4, 2e4)
WITHIN = (-0.9, -0.3, 0.2, 0.8)
SMOOTH = {
    "acos": (jnp.arccos, mpmath.acos, WITHIN),
    "acosh": (jnp.arccosh, mpmath.acosh, ABOVE_ONE),
    "asin": (jnp.arcsin, mpmath.asin, WITHIN),
    "asinh": (jnp.arcsinh, mpmath.asinh, HUGE),
    "atan": (jnp.arctan, mpmath.atan, HUGE),
    "atan2, above": (lambda z: jnp.arctan2(z, 0.7), lambda z: mpmath.atan2(z, 0.7), (1e-4, *ANYWHERE)),
    "atan2, below": (lambda z: jnp.arctan2(0.7, z), lambda z: mpmath.atan2(0.7, z), ANYWHERE),
    "atan2, behind": (lambda z: jnp.arctan2(z, -0.7), lambda z: mpmath.atan2(z, -0.7), ANYWHERE),
    "atan2, near its origin": (lambda z: jnp.arctan2(z, 1e-5), lambda z: mpmath.atan2(z, 1e-5), (1e-5, -3e-5)),
    "atanh": (jnp.arctanh, mpmath.atanh, WITHIN),
    "bessel_i0e": (lax.bessel_i0e, lambda z: mpmath.besseli(0, z) * mpmath.exp(-abs(z)), POSITIVE),
    "bessel_i1e": (lax.bessel_i1e, lambda z: mpmath.besseli(1, z) * mpmath.exp(-abs(z)), POSITIVE),
    "cbrt": (lax.cbrt, mpmath.cbrt, POSITIVE),
    "cos": (jnp.cos, mpmath.cos, ANYWHERE),
    "cosh": (jnp.cosh, mpmath.cosh, ANYWHERE),
    "digamma": (lax.digamma, mpmath.digamma, POSITIVE),
    "div": (lambda z: 1.5 / z, lambda z: 1.5 / z, POSITIVE),
    "erf": (lax.erf, mpmath.erf, (*ANYWHERE, -3.5, 3.003)),
    "erf_inv": (lax.erf_inv, mpmath.erfinv, WITHIN),
    "erfc": (lax.erfc, mpmath.erfc, (*ANYWHERE, -3.5, 3.003)),
    "exp": (jnp.exp, mpmath.exp, TAILS),
    "exp2": (jnp.exp2, lambda z: mpmath.power(2, z), ANYWHERE),
    "expm1": (jnp.expm1, mpmath.expm1, (1e-6, *ANYWHERE)),
    "igamma": (lambda z: lax.igamma(jnp.full_like(z, 2.5), z), lambda z: mpmath.gammainc(2.5, 0, z, True), POSITIVE),
    "igammac": (
        lambda z: lax.igammac(jnp.full_like(z, 2.5), z),
        lambda z: mpmath.gammainc(2.5, z, None, True),
        POSITIVE,
    ),
    "integer_pow": (lambda z: z**5, lambda z: z**5, ANYWHERE),
    "integer_pow, negative": (lambda z: z**-3, lambda z: z**-3, POSITIVE),
    "lgamma": (lax.lgamma, mpmath.loggamma, POSITIVE),
    "log": (jnp.log, mpmath.log, POSITIVE),
    "log1p": (jnp.log1p, mpmath.log1p, (1e-6, *POSITIVE)),
    "logistic": (jax.nn.sigmoid, lambda z: 1 / (1 + mpmath.exp(-z)), TAILS),
    "polygamma": (lambda z: lax.polygamma(jnp.ones_like(z), z), lambda z: mpmath.psi(1, z), POSITIVE),
    "pow, of the base": (lambda z: lax.pow(z, jnp.full_like(z, 2.5)), lambda z: z ** mpmath.mpf(2.5), POSITIVE),
    "pow, of the exponent": (lambda z: lax.pow(jnp.full_like(z, 2.5), z), lambda z: mpmath.mpf(2.5) ** z, ANYWHERE),
    "regularized_incomplete_beta": (
        lambda z: lax.betainc(jnp.full_like(z, 2.0), jnp.full_like(z, 3.0), z),
        lambda z: mpmath.betainc(2, 3, 0, z, True),
        (0.1, 0.4, 0.7),
    ),
    "rsqrt": (lax.rsqrt, lambda z: 1 / mpmath.sqrt(z), (1e-3, *POSITIVE, 1e3)),
    "sin": (jnp.sin, mpmath.sin, ANYWHERE),
    "sinh": (jnp.sinh, mpmath.sinh, ANYWHERE),
    "sqrt": (jnp.sqrt, mpmath.sqrt, (1e-4, *POSITIVE, 3e4)),
    "square": (lax.square, lambda z: z * z, (*ANYWHERE, -200.0)),
    "tan": (jnp.tan, mpmath.tan, (-1.2, 0.3, 1.5)),
    "tanh": (jnp.tanh, mpmath.tanh, TAILS),
}
SPECIAL = {"polygamma", "igamma", "igammac", "regularized_incomplete_beta", "digamma", "lgamma"}
"""Computed in single precision at least."""
EPS = {dtype: float(jnp.finfo(dtype).eps) for dtype in ("float16", "bfloat16", "float32", "float64")}


def pairs_of(starts, dtype):
    """Return pairs of points from equal ones over one unit in the last place to far ones, exact in the dtype."""
    eps = EPS[dtype]
    found = []
    for start in starts:
        reach = 0.1 if starts in (WITHIN, (0.1, 0.4, 0.7)) else 10.0
        steps = [0.0, eps, 3 * eps, 30 * eps, *(abs(start) * 10.0**-k for k in range(13, 0, -1)), reach / 10, reach]
        sign = -1 if starts == WITHIN and start > 0 else 1
        found += [(start, start + sign * step * (abs(start) if step <= 30 * eps else 1)) for step in steps]
    return np.array(found, jnp.dtype(dtype))


def excess(name, pairs, multipliers, dtype):
    """Return the largest relative error of a primitive's multipliers, in units of what is allowed: a thousand eps."""
    exact, worst = SMOOTH[name][1], 0.0
    smallest, largest = (float(getattr(jnp.finfo(dtype), name)) for name in ("tiny", "max"))
    for (x, y), multiplier in zip(pairs.astype(float), multipliers.astype(float)):
        a, b = (mpmath.mpf(z) for z in (x, y))
        slope = mpmath.re((exact(a) - exact(b)) / (a - b) if a != b else mpmath.diff(exact, a))
        if smallest < abs(slope) < largest / 100:
            allowed = min(1e3 * EPS[dtype], 0.1) * float(abs(slope)) + smallest
            worst = max(worst, abs(multiplier - float(slope)) / allowed if np.isfinite(multiplier) else np.inf)
    return worst


@pytest.mark.parametrize("dtype", [pytest.param(d, marks=[pytest.mark.slow] * (d != "bfloat16")) for d in EPS])
def test_multipliers_are_right_at_equal_close_tiny_huge_and_tail_points(dtype):
    names = [name for name in SMOOTH if EPS[dtype] < 1e-6 or name not in SPECIAL]
    pairs = {name: pairs_of(SMOOTH[name][2], dtype) for name in names}
    x, y = ({name: jnp.array(both[:, side]) for name, both in pairs.items()} for side in (0, 1))
    multipliers = jax.jit(
        lambda x, y: duat.secant(lambda x: sum(SMOOTH[name][0](x[name]).sum() for name in names))(x, y).multiplier
    )(x, y)
    with mpmath.workdps(60):
        found = {name: excess(name, pairs[name], np.asarray(multipliers[name]), dtype) for name in names}
    assert {name: worst for name, worst in found.items() if not worst < 1} == {}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_at_two_equal_points_a_kink_has_the_mean_of_both_sides(dtype):
    x, y = jnp.array([1.0, -1.0], dtype), jnp.array([2.0, -2.0], dtype)
    expected = {jax.nn.softplus: 0.5, jnp.abs: 0.0, jnp.square: 0.0, lambda z: jnp.maximum(z, 0): 0.5}
    for fn, slope in expected.items():
        np.testing.assert_array_equal(duat.secant(lambda x, fn=fn: fn(x[0] + x[1]))(x, y).multiplier, [slope, slope])


def test_what_has_no_derivative_is_refused_with_its_line():
    x = jnp.array([0.5, 1.5])
    with pytest.raises(duat.UnsupportedProgram, match="regularized_incomplete_beta"):
        duat.secant(lambda a: lax.betainc(a, 2 * a, 0.5 * jnp.ones(2)).sum())(x, x + 1)
