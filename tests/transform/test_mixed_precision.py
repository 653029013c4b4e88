"""Mixed precision: each part carries the coarsest eps on its own way: a right split doesn't fail, a wrong one does."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import weights_of

import duat_jax as duat
from duat_jax import Key, Site, hold, offset, point, stream, term
from duat_jax.forms.affine_form import collapsed_contributions
from duat_jax.forms.completeness import FAILS, completeness_of
from duat_jax.transform.program import trace
from duat_jax.transform.rounding import rounding_of

TOKENS, FEATURES = 4, 6
KERNELS = [weights_of((FEATURES, FEATURES), key=k) / 2 for k in range(4)]
BIAS = weights_of((FEATURES,), key=9)
READOUT = weights_of((TOKENS, FEATURES), key=11)

PAIRS = [
    pytest.param("float32", "bfloat16", id="float32 with bfloat16"),
    pytest.param("float32", "float16", id="float32 with float16"),
    pytest.param("float64", "float32", id="float64 with float32"),
    pytest.param("float64", "bfloat16", id="float64 with bfloat16"),
    pytest.param("bfloat16", "float32", id="bfloat16 with float32"),
]


def eps(dtype):
    return float(jnp.finfo(dtype).eps)


def product(x, kernel, low):
    """Return a product of another dtype than the stream's."""
    return (x.astype(low) @ kernel.astype(low)).astype(x.dtype)


def block(x, kernels, low):
    scale = hold(jax.lax.rsqrt((x * x).mean(-1, keepdims=True)), "scale")
    bias = offset(BIAS.astype(x.dtype), "bias")
    inner = product(x * scale, kernels[0], low) + bias
    return stream(x + term(jnp.tanh, inner, "mlp", outer=lambda a: product(a, kernels[1], low)), "layer")


def looped(low):
    def fn(x):
        x = stream(x, "layer")
        for pair in (KERNELS[:2], KERNELS[2:]):
            x = block(x, pair, low)
        point(x[:, None], "queries")
        return point(x[:, None], "keys")[:, 0]

    return fn


def scanned(low):
    pairs = jnp.stack([jnp.stack(KERNELS[:2]), jnp.stack(KERNELS[2:])])
    return lambda x: jax.lax.scan(lambda x, pair: (block(x, pair, low), None), stream(x, "layer"), pairs)[0]


def make_input(dtype, key=1):
    return jax.random.normal(jax.random.key(key), (TOKENS, FEATURES), jnp.float64).astype(dtype)


def readout(dtype):
    return READOUT.astype(dtype)


def split(fn, x):
    read = readout(x.dtype)
    keys = [Site("point", Key((), name, 0)) for name in ("queries", "keys")]
    found = {
        "decompose": duat.decompose(lambda x: (read * fn(x)).sum(), x),
        "decompose, tokens": duat.decompose(lambda x: (read * fn(x)).sum(), x, by_neuron=False),
    }
    recording, form = duat.record(fn)(x), duat.unroll(fn, x)
    for k, step in enumerate((*recording.streams, *recording.terms)):
        found[f"contributions {k}"] = duat.contributions(recording, read, target=step)
    found["collapse"] = duat.collapse(fn, x)
    found["collapsed contributions"] = collapsed_contributions(recording, read)
    found["secant"] = duat.secant(lambda x: (read * fn(x)).sum(), held="scale")(x, x[::-1])
    found["near secant"] = duat.secant(lambda x: (read * fn(x)).sum())(x, (1.01 * x).astype(x.dtype))
    if all(site in recording.program.places for site in keys):
        side = duat.results.ScoreSide(0, jnp.eye(TOKENS, dtype=x.dtype)[1])
        points = recording.program.steps("point")
        found["score"] = duat.split_score(recording, *points, side, side)
    each = {name: one.completeness for name, one in found.items()}
    each |= {f"stream {i}": form.completeness(i) for i in range(len(form.streams))}
    return each | {f"layer {i}": form.layer_completeness(i) for i in range(1, len(form.streams))}


def failing(found):
    return {name: one for name, one in found.items() if one.verdict == FAILS}


@pytest.mark.parametrize(("dtype", "low"), [PAIRS[0], pytest.param(*PAIRS[2].values, marks=pytest.mark.slow)])
def test_a_right_split_never_fails(dtype, low):
    with jax.disable_jit():
        assert not failing(split(looped(low), make_input(dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("make", [looped, scanned])
@pytest.mark.parametrize(("dtype", "low"), PAIRS)
def test_a_right_split_never_fails_when_it_is_compiled(dtype, low, make):
    assert not failing(split(jax.jit(make(low)), make_input(dtype)))


@pytest.mark.parametrize(("dtype", "low"), PAIRS)
def test_a_wrong_part_fails(dtype, low):
    """Whatever changes the sum by more than the tolerance: each part that is so large, negated and dropped."""
    x = make_input(dtype)
    with jax.disable_jit():
        found = duat.decompose(lambda x: (readout(dtype) * looped(low)(x)).sum(), x, by_neuron=False)
    parts = [found.input, *found.terms.values(), *found.offsets.values(), found.unmarked]
    whole = np.concatenate([np.asarray(part, np.float64).reshape(-1) for part in parts])
    error, tolerance = abs(float(found.completeness.error)), float(found.completeness.tolerance)
    assert tolerance < 2 * np.abs(whole).max()
    for i in np.flatnonzero(np.abs(whole) > tolerance + error):
        for lie in (0.0, -whole[i]):
            wrong = found.completeness.sum.astype(jnp.float64) - whole[i] + lie
            told = found.completeness._replace(error=wrong - found.completeness.value.astype(jnp.float64))
            assert told.verdict == FAILS


def levels(fn, *x):
    program, _ = trace(fn, list(x))
    return rounding_of(program, provided=program.of_kind("hold"), wanted=(), value=True), program


def test_each_part_has_the_coarsest_eps_of_its_own_way():
    """Two inputs that meet at the end: one by a product in bfloat16, one by none."""

    def fn(xs):
        a, b = xs
        return (product(a, KERNELS[0], jnp.bfloat16) + b @ KERNELS[1].astype(b.dtype)).sum()

    a, b = make_input("float32"), make_input("float32", 2)
    assert levels(fn, a, b)[0].arguments == (eps("bfloat16"), eps("float32"))
    coarse, fine = (duat.decompose(fn, [a * s, b * t]).completeness for s, t in ((1, 0), (0, 1)))
    assert coarse.verdict != FAILS and fine.verdict == "holds"
    assert float(fine.tolerance) < 1e-3 * float(coarse.tolerance)
    # A wrong part on the fine way is noticed, though a coarse product is beside it.
    found = duat.decompose(fn, [a * 0, b])
    wrong = completeness_of(found.completeness.value, [found.input[1] * 1.001])
    assert wrong.verdict == FAILS


def test_weights_of_low_precision_round_nothing():
    def fn(xs):
        return (xs[0] @ KERNELS[0].astype(jnp.bfloat16).astype(jnp.float32)).sum()

    kernel = KERNELS[0].astype(jnp.bfloat16)
    assert levels(fn, make_input("float32"))[0].arguments == (eps("float32"),)
    assert duat.decompose(lambda x: (x @ kernel.astype(x.dtype)).sum(), make_input("float32")).completeness.holds


def with_jvp(fn):
    fn = jax.custom_jvp(fn)
    fn.defjvps(lambda dx, value, x: dx)
    return fn


def with_vjp(fn):
    fn = jax.custom_vjp(fn)
    fn.defvjp(lambda x: (fn(x), None), lambda _, dy: (dy,))
    return fn


LENGTH = jnp.array([2])
INSIDE = {
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "scan": lambda fn: lambda x: jax.lax.scan(lambda x, _: (fn(x), None), x, None, length=3)[0],
    "cond": lambda fn: lambda x: jax.lax.cond(True, fn, lambda x: x, x),
    "custom_jvp": lambda fn: with_jvp(fn),
    "custom_vjp": lambda fn: with_vjp(fn),
    "while": lambda fn: (
        lambda x: jax.lax.while_loop(lambda c: c[1] < LENGTH[0], lambda c: (fn(c[0]), c[1] + 1), (x, 0))[0]
    ),
    "vmap": jax.vmap,
}


@pytest.mark.parametrize("inside", INSIDE)
def test_a_coarse_value_is_found_inside(inside):
    coarse = INSIDE[inside](lambda x: x.astype(jnp.bfloat16).astype(x.dtype))
    found, _ = levels(lambda xs: coarse(xs[0]) + xs[1], make_input("float32"), make_input("float32"))
    assert found.arguments == (eps("bfloat16"), eps("float32"))


def test_rounding_within_a_dtype_counts():
    found, _ = levels(lambda xs: jax.lax.reduce_precision(xs[0], 8, 10), make_input("float32"))
    assert found.arguments == (2.0**-10,)


def test_what_is_before_a_given_value_isnt_on_the_way():
    def fn(xs):
        return hold(xs[0].astype(jnp.bfloat16), "gate").astype(jnp.float32) * xs[1]

    assert levels(fn, make_input("float32"), make_input("float32"))[0].arguments == (0.0, eps("float32"))


@pytest.mark.parametrize("far", [True, False])
def test_a_linen_block_in_bfloat16_with_parameters_in_float32(far):
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            y = nn.LayerNorm(dtype=jnp.bfloat16)(x)
            y = nn.Dense(3 * FEATURES, dtype=jnp.bfloat16)(y)
            y = nn.Dense(FEATURES, dtype=jnp.bfloat16)(nn.gelu(y))
            return x + y.astype(x.dtype)

    x = make_input("float32")
    with jax.numpy_dtype_promotion("standard"):
        variables = Block().init(jax.random.key(0), x)
        metric = jax.jit(duat.secant(lambda x: (readout("float32") * Block().apply(variables, x)).sum()))
        found = metric(x, x[::-1] if far else 1.01 * x)
    assert found.completeness.verdict != FAILS


@pytest.mark.parametrize("far", [True, False])
def test_stock_attention_in_float64_which_computes_in_float32(far):
    def fn(x):
        heads = [(x @ kernel).reshape(1, TOKENS, 2, 3) for kernel in KERNELS[:3]]
        return (READOUT * jax.nn.dot_product_attention(*heads, is_causal=True).reshape(x.shape)).sum()

    x = make_input("float64")
    with jax.numpy_dtype_promotion("standard"):
        found = jax.jit(duat.secant(fn))(x, x[::-1] if far else 1.01 * x)
    assert found.completeness.verdict == "holds"
    assert 1e-9 < float(found.completeness.tolerance) < 1e-3
