"""The check says which operation isn't linear, where, and which mark is missing; what it accepts is affine."""

import inspect
from functools import partial

import equinox
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import linen, nnx
from helpers import close, make_input, recorded

import duat_jax as duat


def line_of(fn, text):
    """Return file:line of the first line of a function that contains a text."""
    lines, start = inspect.getsourcelines(fn)
    return f"{inspect.getsourcefile(fn)}:{start + next(i for i, line in enumerate(lines) if text in line)}"


def forgotten_pattern(x):
    scores = duat.hold(x @ x.T, "scores")
    pattern = jax.nn.softmax(scores + x[:, :1])
    return (pattern @ x).sum()


def forgotten_scale(x):
    scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True))
    return (x * scale).sum()


def forgotten_term(x):
    return jax.nn.gelu(x).sum()


def forgotten_gate(x):
    return (x @ x.T).sum()


def forgotten_maximum(x):
    return jnp.maximum(x, 0.0).sum()


def forgotten_relu(x):
    return jax.nn.relu(x).sum()


def forgotten_silu(x):
    return jax.nn.silu(x).sum()


def forgotten_norm(x):
    return (x / jnp.linalg.norm(x)).sum()


FORGOTTEN = {
    forgotten_relu: ("jax.nn.relu", "term(activation, z, name)"),
    forgotten_silu: ("jax.nn.silu", "term(activation, z, name)"),
    forgotten_norm: ("jnp.linalg.norm", "hold("),
    forgotten_pattern: ("jax.nn.softmax", "hold(pattern, name)"),
    forgotten_scale: ("rsqrt", "hold("),
    forgotten_term: ("gelu", "term(activation, z, name)"),
    forgotten_gate: ("x @ x.T", "hold(factor, name)"),
    forgotten_maximum: ("jnp.maximum", "term(activation, z, name)"),
}


@pytest.mark.parametrize("fn", FORGOTTEN, ids=lambda fn: fn.__name__)
def test_a_forgotten_mark_is_named_with_its_line(fn):
    source, mark = FORGOTTEN[fn]
    with pytest.raises(duat.NotAffine) as raised:
        duat.decompose(fn, make_input())
    assert line_of(fn, source) in str(raised.value)
    assert mark in str(raised.value)


IN_LIBRARIES = {
    "flax": nnx.RMSNorm(6, rngs=nnx.Rngs(0)),
    "linen": partial(linen.LayerNorm(use_bias=False).apply, {"params": {"scale": jnp.ones(6)}}),
    "equinox": jax.vmap(equinox.nn.LayerNorm(6)),
    "optax": partial(optax.losses.softmax_cross_entropy, labels=jnp.ones((4, 6))),
    "jitted by JAX": jax.nn.silu,
}


@pytest.mark.parametrize("library", IN_LIBRARIES)
def test_the_users_line_is_named_where_the_operation_is_a_librarys(library):
    """And the line of this call, though the library's function was traced before from elsewhere."""
    part, x = IN_LIBRARIES[library], make_input()

    def elsewhere(x):
        return part(x)

    def fn(x):
        return part(x).sum()

    with jax.numpy_dtype_promotion("standard"), pytest.raises(duat.NotAffine) as raised:
        elsewhere(x)
        duat.decompose(fn, x)
    for offence in str(raised.value).splitlines()[1:]:
        assert line_of(fn, "part(x)") in offence


def test_every_offence_is_reported_at_once_and_its_consequences_are_not():
    def fn(x):
        y = jnp.tanh(x)
        z = jnp.exp(y)
        return (z * jnp.sin(x)).sum()

    with pytest.raises(duat.NotAffine) as raised:
        duat.decompose(fn, make_input())
    message = str(raised.value)
    assert "tanh" in message
    assert "sin" in message
    assert "exp isn't" not in message


def test_a_forgotten_mark_inside_a_scan_is_found():
    def fn(x):
        return jax.lax.scan(lambda x, _: (jnp.tanh(x), None), x, None, length=3)[0].sum()

    with pytest.raises(duat.NotAffine, match="tanh"):
        duat.decompose(fn, make_input())


@pytest.mark.parametrize("loop", ["while", "cond"])
def test_a_mark_where_it_cant_be_followed_is_an_error(loop):
    def fn(x):
        if loop == "while":
            return jax.lax.fori_loop(0, x.shape[0] + jnp.int32(0), lambda i, x: duat.hold(x, "inside"), x).sum()
        return jax.lax.cond(x.sum() > 0, lambda x: duat.hold(x, "inside"), lambda x: x, x).sum()

    with pytest.raises(duat.UnsupportedProgram, match=rf"hold\('inside'\) is inside '{loop}'.*: use "):
        jax.jit(lambda x: recorded(fn)(x)[0])(make_input())


def test_integers_and_comparisons_of_what_flows_are_refused():
    with pytest.raises(duat.NotAffine):
        duat.decompose(lambda x: x.astype(int).sum().astype(float), make_input())
    with pytest.raises(duat.NotAffine):
        duat.decompose(lambda x: jnp.where(x > 0, x, 0.0).sum(), make_input())


def linear_operations(x):
    """Linear in x by many primitives."""
    y = jnp.concatenate([x[::-1], jnp.pad(x, 1)[1:-1, 1:-1]], axis=0)
    y = y.at[jnp.array([0, 2])].add(x[:2]).at[1].set(x[0])
    y = y.at[0].multiply(2.0) + jnp.tile(y[:1], (8, 1)) + jnp.fft.ifft(jnp.fft.fft(y.reshape(-1))).real.reshape(8, 6)
    y = jnp.where(jnp.arange(6) % 2 == 0, y, -y) + jnp.cumsum(y, axis=0) - y / 3.0
    y = jax.lax.dynamic_slice(y, (1, 0), (4, 6)) + jax.lax.dynamic_update_slice(x, x[:1], (2, 0))
    y = jax.scipy.linalg.solve_triangular(jnp.tril(jnp.ones((4, 4))) + jnp.eye(4), y)
    y = jnp.einsum("tf,gf->tg", y, jnp.eye(6)) + jnp.squeeze(y[None], 0).astype(jnp.float32).astype(jnp.float64)
    y = jax.lax.conv_general_dilated(
        y[None], jnp.ones((3, 6, 6)), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
    )
    return (jnp.take(y[0], jnp.array([3, 0]), axis=0)).sum()


def test_what_is_linear_is_accepted_and_decomposed():
    x = make_input()
    parts = duat.decompose(linear_operations, x)
    close(parts.completeness.value, linear_operations(x), layers=50)
    close(parts.input, jax.grad(linear_operations)(x) * x, layers=50)
    assert float(parts.unmarked) == 0


def test_an_unmarked_constant_is_a_part_of_its_own():
    bias = jnp.arange(6.0)

    def fn(x):
        return (2 * x + bias).sum()

    parts = duat.decompose(fn, make_input())
    close(parts.unmarked, 4 * bias.sum())
    assert parts.completeness.holds
    marked = duat.decompose(lambda x: (2 * x + duat.offset(bias, "bias")).sum(), make_input())
    close(marked.offsets["bias"], 4 * bias.sum())
    assert float(marked.unmarked) == 0


def test_decompose_wants_a_scalar():
    with pytest.raises(duat.DuatError, match=r"shapes \[\(4, 6\)\].*scalar"):
        duat.decompose(lambda x: x, make_input())
