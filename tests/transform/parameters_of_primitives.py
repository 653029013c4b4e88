"""Operations over the parameters of their primitives; with those of other tests, each parameter has two values."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from helpers import make_input, weights_of
from jax import lax
from test_primitives import PARTS, on_devices


def exact(numbers):
    """Return numbers that are exact in every dtype, or nearly the given ones."""
    return jnp.round(256 * numbers) / 256


X, Y, ELSEWHERE = (exact(make_input(key=key)) for key in (1, 5, 7))
"""Two inputs, and a change of one."""


def w(x, *shape):
    """Return numbers of a shape in an array's dtype."""
    with jax.ensure_compile_time_eval():
        return exact(weights_of(shape)).astype(x.dtype)


PLACES, SORTED = jnp.array([[2], [0], [9]]), jnp.array([[0], [1], [2]])
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
COLUMNS = lax.GatherDimensionNumbers((0,), (1,), (1,))
INTO_ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
INTO_COLUMNS = lax.ScatterDimensionNumbers((0,), (1,), (1,))


def gathered(x):
    return [
        lax.gather(x, PLACES, ROWS, (1, 6), mode="clip"),
        lax.gather(x, PLACES, COLUMNS, (4, 1), mode="fill", fill_value=0.0, unique_indices=True),
        lax.gather(x, SORTED, ROWS, (1, 6), indices_are_sorted=True, mode="promise_in_bounds"),
    ]


def scattered(scatter, x):
    return [
        scatter(x, PLACES, x[:, 3:] * 0.5, INTO_COLUMNS, mode="clip"),
        scatter(x, PLACES, 2 * x[1:], INTO_ROWS, mode="drop", unique_indices=True),
        scatter(x, SORTED, 2 * x[1:], INTO_ROWS, indices_are_sorted=True, mode="promise_in_bounds"),
    ]


def convolved(x):
    x, convolve = x.reshape(2, 2, 6), lax.conv_general_dilated
    return [
        convolve(x, w(x, 4, 1, 3), (2,), ((1, 2),), feature_group_count=2),
        convolve(x, w(x, 2, 2, 3), (1,), ((0, 0),), (2,), (2,), batch_group_count=2, precision="highest"),
        convolve(x, w(x, 3, 6, 2), (1,), ((2, -1),), dimension_numbers=("NWC", "WIO", "NWC")),
        convolve(x, w(x, 2, 2, 2), (1,), "SAME", preferred_element_type=jnp.float64),
    ]


def windowed(fold, initial, x):
    """Return a reduction over windows with dilations and another one without."""
    initial = np.array(initial, x.dtype)
    padded = lax.reduce_window(x, initial, fold, (2, 3), (2, 1), ((1, 0), (0, 2)), (1, 2), (2, 1))
    return [padded, lax.reduce_window(x, initial, fold, (1, 2), (1, 2), "VALID")]


def ragged(x, weights, sizes, contracted, batch=((), ()), of_groups=()):
    """Return a product whose groups lie along the first axis."""
    numbers = lax.RaggedDotDimensionNumbers((contracted, batch), [0], of_groups)
    return lax.ragged_dot_general(x, weights, jnp.array(sizes), numbers)


def along(axes, fn, x):
    return [fn(x.reshape(2, 2, 6), axis) for axis in axes]


@jax.custom_vjp
def doubled(x):
    return 2 * x


@jax.custom_jvp
def tripled(x):
    return 3 * x


doubled.defvjp(lambda x: (2 * x.value, None), lambda _, u: (2 * u,), symbolic_zeros=True)
tripled.defjvp(lambda x, dx: (3 * x[0], 3 * dx[0]), symbolic_zeros=True)

LINEAR = {
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (4, 3, 6), (0, 2)),
    "concatenate": lambda x: lax.concatenate([x, 2 * x], 1),
    "conv_general_dilated": convolved,
    "convert_element_type": lambda x: x.astype(jnp.float16),
    "copy": lambda x: jnp.array(x.T),
    "cumsum": lambda x: lax.cumsum(x, 0, reverse=True),
    "custom_jvp_call": tripled,
    "custom_linear_solve": lambda x: lax.custom_linear_solve(
        lambda v: 2 * v, x, lambda _, b: b / 2, lambda _, b: b / 2
    ),
    "custom_vjp_call": doubled,
    "device_put": lambda x: jax.device_put(x, jax.devices()[0], may_alias=False),
    "dot_general": lambda x: [
        lax.dot_general(x.reshape(2, 2, 6), w(x, 2, 6, 3), (((2,), (1,)), ((0,), (0,)))),
        lax.dot_general(w(x, 4, 3), x, (((0,), (0,)), ((), ())), "highest", jnp.float64),
    ],
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (3, -3), (2, 2)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, 2 * x[:2, 1:], (3, -2)),
    "gather": gathered,
    "integer_pow": lambda x: lax.integer_pow(x, 1),
    "mul": lambda x: lax.mul(x, w(x, 4, 6), out_dtype=jnp.float64),
    "name": lambda x: jax.ad_checkpoint.checkpoint_name(x, "y"),
    "pad": lambda x: lax.pad(x, x[1, 1], ((-1, 0, 2), (2, -1, 1))),
    "ragged_dot_general": lambda x: [
        ragged(x.T, w(x, 2, 6, 4), [2, 3], ((1,), (2,)), of_groups=[0]),
        ragged(x, w(x, 4, 2), [3, 1], ((0,), (0,))),
        ragged(x.reshape(4, 2, 3), w(x, 2, 4, 3), [[1, 2, 1], [0, 3, 0]], ((0, 2), (1, 2)), ((1,), (0,))),
        ragged(x, w(x, 4, 6, 3), [1, 3], ((1,), (1,)), ((0,), (0,))),
        lax.ragged_dot(x, w(x, 2, 6, 3), jnp.array([0, 4]), "highest", jnp.float64),
    ],
    "reduce": lambda x: [lax.reduce(x, x[0, 0], lambda a, b: b + a, axes) for axes in ((1,), (0, 1))],
    "reduce_precision": lambda x: lax.reduce_precision(x, 8, 20),
    "reduce_sum": partial(along, (2, (0, 1)), jnp.sum),
    "reduce_window": partial(windowed, lambda a, b: b + a, 0.0),
    "reduce_window_sum": partial(windowed, lax.add, 0.0),
    "remat2": jax.checkpoint(lambda x: 2 * x, prevent_cse=False, policy=jax.checkpoint_policies.everything_saveable),
    "reshape": lambda x: lax.reshape(x, (8, 3), dimensions=(1, 0)),
    "rev": lambda x: lax.rev(x, (1,)),
    "scan": lambda x: lax.scan(
        lambda c, r: ((c[1] + r, c[0] @ w(x, 6, 6)), x.sum(0)), (x[0], x[1]), x[:3], reverse=True, unroll=2
    ),
    "scatter": partial(scattered, lax.scatter),
    "scatter-add": partial(scattered, lax.scatter_add),
    "scatter-mul": lambda x: [
        lax.scatter_mul(x, PLACES, w(x, 3, 6), INTO_ROWS, mode="clip"),
        lax.scatter_mul(x, SORTED, w(x, 4, 3), INTO_COLUMNS, indices_are_sorted=True, unique_indices=True),
    ],
    "scatter-sub": partial(scattered, lax.scatter_sub),
    "select_n": lambda x: lax.select_n(jnp.arange(24).reshape(4, 6) % 3, x, 2 * x, -x),
    "slice": lambda x: lax.slice(x, (1, 0), (4, 5), (2, 3)),
    "split": lambda x: lax.split(x, (1, 0, 3), 0)[2],
    "squeeze": lambda x: lax.squeeze(x[:, None, :1], (1, 2)),
    "stack": lambda x: jnp.stack([x, 2 * x], 2),
    "tile": lambda x: jnp.tile(x, (3, 1)),
    "transpose": lambda x: lax.transpose(x.reshape(2, 2, 6), (2, 0, 1)),
    "triangular_solve": lambda x: [
        lax.linalg.triangular_solve(w(x, 6, 6) + 9 * jnp.eye(6, dtype=x.dtype), x, transpose_a=True),
        lax.linalg.triangular_solve(w(x, 4, 4) / 4, x, left_side=True, lower=True, unit_diagonal=True),
    ],
    "unstack": lambda x: jnp.unstack(x, axis=1)[4],
}

OF_COMPLEX_NUMBERS_AND_DEVICES = {
    "all_gather": on_devices(lambda x: lax.all_gather(x, "i", axis=1, tiled=True)),
    "all_to_all": on_devices(lambda x: lax.all_to_all(x[:, None, None], "i", 1, 1)),
    "fft": lambda x: [
        jnp.fft.fft2(x.astype(complex)).imag,
        (jnp.fft.ifft(x.astype(complex), 8, 0) * (1 + 2j)).real,
    ],
    "ppermute": on_devices(lambda x: x + lax.ppermute(x, "i", [])),
    "psum_invariant": on_devices(lambda x: lax.psum(x, "i"), PARTS()),
    "reduce_scatter": on_devices(
        lambda x: lax.psum_scatter(x[None], "i") + lax.psum_scatter(x[None], "i", scatter_dimension=1, tiled=True)[0]
    ),
}

ACCURATE = [
    name for name in dir(lax) if callable(fn := getattr(lax, name)) and "accuracy" in getattr(fn, "__annotations__", {})
]
"""The functions that take an accuracy in the installed version of JAX."""
IN_ANY_ORDER = "is_stable" in lax.top_k.__annotations__
"""Whether `top_k` may give ties in any order in the installed version of JAX."""

NOT_LINEAR = {
    "accuracy": lambda x: [getattr(lax, f)(0.25 + x * x / 8, accuracy=lax.AccuracyMode.HIGHEST) for f in ACCURATE],
    **{
        name: partial(along, ((0, True), (1, False)), lambda x, a, name=name: getattr(lax, name)(x, a[0], a[1]))
        for name in ("cumlogsumexp", "cummax", "cummin", "cumprod")
    },
    **{f"reduce_{name}": partial(along, (0, (0, 2)), getattr(jnp, name)) for name in ("max", "min", "prod")},
    "argmax": partial(along, (1, 2), lambda x, a: lax.argmax(x, a, jnp.int32)),
    "argmin": partial(along, (1, 2), lambda x, a: lax.argmin(x, a, jnp.int32)),
    "clamp": lambda x: [lax.clamp(w(x), x, 1 + w(x)), lax.clamp(x[0, 0], x, 2 + x[1, 1])],
    "cond": lambda x: lax.switch(jnp.int32(2 * x[0, 0]), [jnp.sin, lambda x: x @ w(x, 6, 6), jnp.negative], x),
    "conv_general_dilated": lambda x: lax.conv_general_dilated(
        x.reshape(2, 2, 6), x[:, :3].reshape(4, 1, 3), (2,), ((1, 2),), feature_group_count=2
    ),
    "dot_general": lambda x: [
        lax.dot_general(x.reshape(2, 2, 6), x.reshape(2, 6, 2), (((2,), (1,)), ((0,), (0,)))),
        lax.dot_general(x, x, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float64),
    ],
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (jnp.argmax(x[:, 0]), 3 + jnp.argmin(x[0])), (3, 4)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:1] * x[1:2], (jnp.argmax(x[:, 0]), 0)),
    "gather": lambda x: lax.gather(x, jnp.argsort(x, 0)[:, :1] + 1, ROWS, (1, 6), mode="fill", fill_value=0.25),
    "integer_pow": lambda x: [lax.integer_pow(4 + x, n) for n in (-3, -2, -1, 0, 2, 4, 5)],
    "mul": lambda x: lax.mul(x, x[::-1], out_dtype=jnp.float64),
    "ragged_dot_general": lambda x: ragged(x, x[:, :2] * x[:, 2:4], [3, 1], ((0,), (0,))),
    "reduce_and": partial(along, (0, 2), lambda x, a: (x > 0.25).all(a)),
    "reduce_or": partial(along, (0, 2), lambda x, a: (x > 1).any(a)),
    "reduce_xor": partial(along, ((0,), (0, 1)), lambda x, a: lax.reduce_xor_p.bind(x > 1, axes=a)),
    "reduce_window_max": partial(windowed, lax.max, -jnp.inf),
    "reduce_window_min": partial(windowed, lax.min, jnp.inf),
    "round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "scan": lambda x: lax.scan(lambda c, r: (c * r, jnp.tanh(c)), x[0], x, reverse=True, unroll=2)[1],
    "scatter-max": partial(scattered, lax.scatter_max),
    "scatter-min": partial(scattered, lax.scatter_min),
    "select_n": lambda x: [
        jnp.where(x > 1, jnp.stack([x, x * x]), 2 * x),
        lax.select_n(jnp.argsort(x, 1)[..., :3].astype(jnp.int32) // 2, x[:, :3], x[:, 3:], -x[:, 1:4]),
    ],
    "sort": lambda x: [
        lax.sort((jnp.floor(x), x * x, jnp.sin(x)), dimension=0, num_keys=2)[2],
        lax.sort(x, dimension=1, is_stable=False),
    ],
    "top_k": lambda x: lax.top_k(x, 2, axis=0)[0],
    **({"top_k, is_stable": lambda x: lax.top_k(x, 2, is_stable=False)[0]} if IN_ANY_ORDER else {}),
}
