"""In every dtype and however they are written, softmax, its relatives and norms split as their formulas say."""

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from helpers import numbers
from jax import lax

import duat_jax as duat

DTYPES = ("float16", "bfloat16", "float32", "float64")
ROWS, WIDTH = 4, 6
MASK = np.arange(ROWS)[:, None] + 2 >= np.arange(WIDTH)[None]


def lowest(x):
    return jnp.finfo(x.dtype).min


def powers(x):
    return jnp.exp(x - lax.stop_gradient(x.max(-1, keepdims=True)))


def divided(x):
    return x / x.sum(-1, keepdims=True)


def largest(x):
    return lax.stop_gradient(x.max(-1, keepdims=True))


SOFTMAX = {
    "jax.nn": jax.nn.softmax,
    "Flax": lambda x: nnx.softmax(x),
    "in single precision": lambda x: jax.nn.softmax(x.astype(jnp.float32)).astype(x.dtype),
    "where=": lambda x: jax.nn.softmax(x, where=MASK),
    "minus infinity chosen": lambda x: jax.nn.softmax(jnp.where(MASK, x, -jnp.inf)),
    "minus infinity added": lambda x: jax.nn.softmax(x + jnp.where(MASK, 0, -jnp.inf).astype(x.dtype)),
    "the lowest number chosen": lambda x: jax.nn.softmax(jnp.where(MASK, x, lowest(x))),
    "the lowest number added": lambda x: jax.nn.softmax(x + jnp.where(MASK, 0, lowest(x) / 2).astype(x.dtype)),
    "by hand": lambda x: divided(powers(x)),
    "by hand, the maximum flows": lambda x: divided(jnp.exp(x - x.max(-1, keepdims=True))),
    "by hand, in single precision": lambda x: divided(powers(x.astype(jnp.float32))).astype(x.dtype),
    "by hand, where= in the sum": lambda x: (
        (e := powers(jnp.where(MASK, x, -jnp.inf))) / e.sum(-1, keepdims=True, where=MASK)
    ),
    "by hand, zeros chosen": lambda x: divided(jnp.where(MASK, powers(x), 0)),
    "by hand, zeros where a mask hides": lambda x: divided(jnp.where(~MASK, 0, powers(x))),
    "by hand, times a mask": lambda x: divided(powers(x) * MASK.astype(x.dtype)),
    "by hand, only the sum masked": lambda x: (e := powers(x)) / e.sum(-1, keepdims=True, where=MASK),
    "by hand, written twice": lambda x: jnp.exp(x - largest(x)) / jnp.exp(x - largest(x)).sum(-1)[:, None],
    "by hand, with a reciprocal": lambda x: (e := powers(x)) * (1 / e.sum(-1, keepdims=True)),
    "by hand, with a power": lambda x: (e := powers(x)) * e.sum(-1, keepdims=True) ** -1,
    "the power of log-softmax": lambda x: jnp.exp(jax.nn.log_softmax(x)),
}
LOG_SOFTMAX = {
    "jax.nn": jax.nn.log_softmax,
    "Flax": lambda x: nnx.log_softmax(x),
    "where=": lambda x: jnp.where(MASK, jax.nn.log_softmax(x, where=MASK), 0),
    "minus infinity chosen": lambda x: jnp.where(MASK, jax.nn.log_softmax(jnp.where(MASK, x, -jnp.inf)), 0),
    "the lowest number added": lambda x: jnp.where(
        MASK, jax.nn.log_softmax(x + jnp.where(MASK, 0, lowest(x) / 2).astype(x.dtype)), 0
    ),
    "by hand": lambda x: x - largest(x) - jnp.log(powers(x).sum(-1, keepdims=True)),
    "what logsumexp leaves": lambda x: x - jax.nn.logsumexp(x, -1, keepdims=True),
}
LOGSUMEXP = {
    "jax.nn": lambda x: jax.nn.logsumexp(x, -1),
    "Flax": lambda x: nnx.logsumexp(x, -1),
    "where=": lambda x: jax.nn.logsumexp(x, -1, where=MASK),
    "minus infinity chosen": lambda x: jax.nn.logsumexp(jnp.where(MASK, x, -jnp.inf), -1),
    "by hand": lambda x: jnp.log(powers(x).sum(-1)) + largest(x)[:, 0],
    "by hand, zeros chosen": lambda x: jnp.log(jnp.where(MASK, powers(x), 0).sum(-1)) + largest(x)[:, 0],
}
SIGMOID = {
    "jax.nn": jax.nn.sigmoid,
    "Flax": lambda x: nnx.sigmoid(x),
    "by hand": lambda x: 1 / (1 + jnp.exp(-x)),
    "by tanh": lambda x: (jnp.tanh(x / 2) + 1) / 2,
    "chosen": lambda x: jnp.where(MASK, jax.nn.sigmoid(x), 0),
}
RMS_NORM = {
    "by hand": lambda x: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5),
    "by hand, in single precision": lambda x: (
        x * lax.rsqrt(jnp.square(x.astype(jnp.float32)).mean(-1, keepdims=True) + 1e-5).astype(x.dtype)
    ),
    "by hand, a quotient": lambda x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    "Flax NNX": lambda x: nnx.RMSNorm(WIDTH, epsilon=1e-5, dtype=x.dtype, param_dtype=x.dtype, rngs=nnx.Rngs(0))(x),
    "Flax Linen": lambda x: linen.RMSNorm(epsilon=1e-5, dtype=x.dtype).apply(
        {"params": {"scale": jnp.ones(WIDTH, x.dtype)}}, x
    ),
    "Equinox": lambda x: jax.vmap(equinox.nn.RMSNorm(WIDTH, dtype=x.dtype))(x),
}
LAYER_NORM = {
    "jax.nn": lambda x: jax.nn.standardize(x, epsilon=1e-5),
    "by hand": lambda x: (c := x - x.mean(-1, keepdims=True)) / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-5),
    "by hand, the variance": lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5),
    "Flax NNX": lambda x: nnx.LayerNorm(WIDTH, epsilon=1e-5, dtype=x.dtype, param_dtype=x.dtype, rngs=nnx.Rngs(0))(x),
    "Flax Linen": lambda x: linen.LayerNorm(epsilon=1e-5, dtype=x.dtype).apply(
        {"params": {"scale": jnp.ones(WIDTH, x.dtype), "bias": jnp.zeros(WIDTH, x.dtype)}}, x
    ),
    "Equinox": lambda x: jax.vmap(equinox.nn.LayerNorm(WIDTH, dtype=x.dtype))(x),
}


def masked(name):
    return any(word in name for word in ("mask", "where", "chosen", "infinity", "lowest"))


def moved(f, x, y):
    """Return the secant of an elementwise function in many digits."""
    return np.where(x == y, 0, f(x) - f(y)) / np.where(x == y, 1, x - y)


def of_scores(name, x, y, u, function):
    """Return the multiplier of what is normalised: `L (u − ⟨L, u⟩ / ΣL)`, `u − ΣuL / ΣL`, `uL / ΣL`."""
    counted = MASK if masked(name) else np.ones_like(MASK)
    logs = [z - np.log(np.where(counted, np.exp(z), 0).sum(-1, keepdims=True)) for z in (x, y)]
    means = moved(np.exp, *logs)
    weights = np.where(counted, means, 0) / np.where(counted, means, 0).sum(-1, keepdims=True)
    read = u if "only the sum" in name or not masked(name) else np.where(MASK, u, 0)
    if function == "softmax":
        return means * read - weights * (means * read).sum(-1, keepdims=True)
    if function == "log-softmax":
        return read - weights * read.sum(-1, keepdims=True)
    return weights * u[:, :1]


def of_sigmoid(name, x, y, u, function):
    """Return the multiplier of the logistic function: its slope."""
    return moved(lambda z: 1 / (1 + np.exp(-z)), x, y) * (np.where(MASK, u, 0) if masked(name) else u)


def of_norm(name, x, y, u, function):
    """Return the multiplier of `c r` with `r = (mean c² + 1e-5)^(-1/2)`: `r̄ u + ⟨c̄, u⟩ Δr / Δ(mean c²) · 2 c̄ / n`."""
    c = [z - (z.mean(-1, keepdims=True) if function == "layer norm" else 0) for z in (x, y)]
    squares = [(z * z).mean(-1, keepdims=True) for z in c]
    r, middle = [1 / np.sqrt(square + 1e-5) for square in squares], (c[0] + c[1]) / 2
    slope = moved(lambda square: 1 / np.sqrt(square + 1e-5), *squares)
    on_c = u * (r[0] + r[1]) / 2 + (u * middle).sum(-1, keepdims=True) * slope * 2 * middle / WIDTH
    return on_c - (on_c.mean(-1, keepdims=True) if function == "layer norm" else 0)


FUNCTIONS = {
    "softmax": (SOFTMAX, of_scores),
    "log-softmax": (LOG_SOFTMAX, of_scores),
    "logsumexp": (LOGSUMEXP, of_scores),
    "sigmoid": (SIGMOID, of_sigmoid),
    "RMS norm": (RMS_NORM, of_norm),
    "layer norm": (LAYER_NORM, of_norm),
}
APART = (0.0, 6.0, 40.0, 300.0)
"""By how much the largest entries of a row differ between both inputs; norms are of numbers so many times larger."""


def inputs(function, dtype):
    """Return two inputs for each distance, exact in the dtype."""
    x, y = (numbers(len(APART), ROWS, WIDTH, key=key) for key in (21, 22))
    for i, apart in enumerate(APART):
        if "norm" in function:
            y[i] *= 1 + apart / 10
        else:
            y[i, 0] += apart
            y[i, 1, 2] += apart
            x[i, 1, 0] += apart
    return [jnp.array(z).astype(dtype) for z in (x, y)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [pytest.param(d, marks=[pytest.mark.slow] * (d != "float16")) for d in DTYPES])
def test_multipliers_are_what_the_formulas_say(dtype, function):
    functions, expected = FUNCTIONS[function]
    functions = {n: fn for n, fn in functions.items() if dtype != "float64" or not n.endswith("in single precision")}
    x, y = inputs(function, dtype)
    readout = jnp.array(numbers(ROWS, WIDTH, key=23)).astype(dtype)

    def total(x):
        results = {name: jax.vmap(fn)(x[name]) for name, fn in functions.items()}
        return sum((result * (readout if result.ndim == 3 else readout[:, 0])).sum() for result in results.values())

    with jax.numpy_dtype_promotion("standard"):
        found = jax.jit(duat.secant(total))(*(dict.fromkeys(functions, z) for z in (x, y)))
    x, y, readout = (np.asarray(z, np.longdouble) for z in (x, y, readout))
    worst = {}
    for name, multiplier in found.multiplier.items():
        by_formula = np.stack([expected(name, *pair, readout, function) for pair in zip(x, y, strict=True)])
        error = np.abs(np.asarray(multiplier, np.float64) - by_formula).max((-1, -2))
        worst[name] = (error / np.abs(by_formula).max((-1, -2)) / float(jnp.finfo(dtype).eps)).round(1)
    assert {name: w for name, w in worst.items() if not (w < 16).all()} == {}


def online(scores, values):
    """Return `softmax(scores) @ values`, one key after another: the maximum, the sum and the mean of those so far."""

    def step(carry, of_key):
        top, total, mixed = carry
        score, value = of_key
        new = jnp.maximum(top, score)
        shrunk, power = jnp.exp(top - new), jnp.exp(score - new)
        mixed = mixed * shrunk[:, None] + power[:, None] * value
        return (new, total * shrunk + power, mixed), None

    first = (jnp.full(ROWS, -jnp.inf), jnp.zeros(ROWS), jnp.zeros((ROWS, values.shape[-1])))
    (_, total, mixed), _ = lax.scan(step, first, (scores.T, values))
    return mixed / total[:, None]


def chosen_way(x):
    return lax.cond(x[0, 0] < 1e6, lambda x: jnp.exp(x - largest(x)), jnp.exp, x)


VALUES, ROW = numbers(WIDTH, 3, key=41), np.arange(ROWS * WIDTH) // WIDTH
UNRECOGNISED = {
    "the sum of values divided": lambda x: (powers(x) @ VALUES) / powers(x).sum(-1, keepdims=True),
    "a sum that can't be zero": lambda x: (e := powers(x)) / (e.sum(-1, keepdims=True) + 1e-9),
    "a sum with a limit": lambda x: (e := powers(x)) / jnp.maximum(e.sum(-1, keepdims=True), 1e-9),
    "online, in a scan": lambda x: online(x, jnp.array(VALUES)),
    "a sum that is a product": lambda x: (e := powers(x)) / (e @ jnp.ones((WIDTH, 1))),
    "in segments": lambda x: (e := powers(x).ravel()) / jax.ops.segment_sum(e, ROW, ROWS)[ROW],
    "the logarithm of a mean": lambda x: jnp.log(powers(x).mean(-1)) + largest(x)[:, 0],
    "powers of two": lambda x: (e := jnp.exp2(x - largest(x))) / e.sum(-1, keepdims=True),
    "within remat": jax.checkpoint(lambda x: (e := powers(x)) / (e.sum(-1, keepdims=True) + 1e-9)),
    "two numbers": lambda x: (e := powers(x))[:, 0] / (e[:, 0] + e[:, 1]),
    "in branches": lambda x: (e := chosen_way(x)) / (e.sum(-1, keepdims=True) + 1e-9),
}
"""Quotients of exponentials that aren't recognised: their parts sum, and are others than softmax's."""


def test_an_unrecognised_softmax_whose_exponents_move_far_is_noted():
    x, y = inputs("softmax", "float64")

    def total(x):
        return sum(fn(x[name]).ravel()[0] for name, fn in UNRECOGNISED.items())

    split = jax.jit(duat.secant(total))
    far, near = (split(*(dict.fromkeys(UNRECOGNISED, z) for z in (x[2], other))) for other in (y[2], x[2] + 1e-3))
    assert far.completeness.verdict == near.completeness.verdict == "holds"
    assert len(far.notes) == len(UNRECOGNISED)
    assert all("test_secant_dtypes.py" in note and "jax.nn.softmax" in note for note in far.notes)
    # What happens in branches isn't measured.
    assert len(near.unrecognised) == len(UNRECOGNISED) and len(near.notes) == 1


def test_how_far_exponents_moved_counts_exponentials_that_are_not_zero():
    x, y = (jnp.array([row]) for row in ([30.0, 0.0, -1e9], [-30.0, 10.0, -2e9]))
    found = duat.secant(lambda x: ((e := powers(x)) / (e.sum() + 1e-9))[0, 0])(x, y)
    assert [float(far) for far in found.unrecognised.values()] == [40.0]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_recognised_has_no_note_nor_has_what_follows_it(function):
    functions, (x, y) = FUNCTIONS[function][0], inputs(function, "float64")
    following = (jax.nn.softmax, RMS_NORM["by hand, a quotient"], LAYER_NORM["by hand"], LAYER_NORM["jax.nn"])

    def total(x):
        results = [fn(x[name]) for name, fn in functions.items()]
        mixed = [x[name] * (r if r.ndim == 2 else r[:, None]) for name, r in zip(functions, results, strict=True)]
        return sum(after(m)[0, 0] for m in mixed for after in following)

    with jax.numpy_dtype_promotion("standard"):
        found = jax.eval_shape(duat.secant(total), *(dict.fromkeys(functions, z[2]) for z in (x, y)))
    assert found.unrecognised == {}


def softplus_by_hand(x):
    return jnp.log(1 + jnp.exp(x))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (jnp.exp(x) - jnp.exp(-x)) / (jnp.exp(x) + jnp.exp(-x)),
        lambda x: x / (1 + jnp.exp(-x)),
        softplus_by_hand,
        lambda x: jnp.logaddexp(x, 0.0),
        lambda x: (h := softplus_by_hand(x) @ VALUES) / jnp.abs(h).sum(-1, keepdims=True),
        jax.nn.elu,
    ],
)
def test_elementwise_functions_by_exponentials_have_no_note(fn):
    x, y = inputs("sigmoid", "float64")
    assert jax.eval_shape(duat.secant(lambda x: fn(x).sum()), x[0], y[0]).unrecognised == {}


HEADS, TOKENS = 2, 8


def attention_by_hand(x, queries, keys, values, out):
    q, k, v = ((x @ w).reshape(TOKENS, HEADS, -1) for w in (queries, keys, values))
    scores = jnp.einsum("qhf,khf->hqk", q, k) / np.sqrt(q.shape[-1]).astype(x.dtype)
    pattern = jax.nn.softmax(jnp.where(jnp.tri(TOKENS, dtype=bool), scores, lowest(x)))
    return jnp.einsum("hqk,khf->qhf", pattern, v).reshape(TOKENS, -1) @ out


def attention_of_jax(x, queries, keys, values, out):
    q, k, v = ((x @ w).reshape(TOKENS, HEADS, -1) for w in (queries, keys, values))
    return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(TOKENS, -1) @ out


def attention_of_flax(x, queries, keys, values, out):
    settings = {"dtype": x.dtype, "param_dtype": x.dtype, "use_bias": False, "decode": False, "rngs": nnx.Rngs(0)}
    attention = nnx.MultiHeadAttention(HEADS, WIDTH, **settings)
    for layer, weights in ((attention.query, queries), (attention.key, keys), (attention.value, values)):
        layer.kernel[...] = weights.reshape(layer.kernel.shape)
    attention.out.kernel[...] = out.reshape(attention.out.kernel.shape)
    return attention(x, mask=nnx.make_causal_mask(x[:, 0]))


def attention_of_equinox(x, *weights):
    attention = equinox.nn.MultiheadAttention(HEADS, WIDTH, dtype=x.dtype, key=jax.random.key(0))
    layers = ("query_proj", "key_proj", "value_proj", "output_proj")
    weights = [w.T for w in weights]
    attention = equinox.tree_at(lambda a: [getattr(a, layer).weight for layer in layers], attention, weights)
    return attention(x, x, x, mask=jnp.tri(TOKENS, dtype=bool))


ATTENTION = {
    "by hand": attention_by_hand,
    "jax.nn": attention_of_jax,
    "Flax": attention_of_flax,
    "Equinox": attention_of_equinox,
}


COMPUTES = {"jax.nn": "float32", "Flax": "float32"}
"""JAX's own attention computes its scores in single precision, and CPUs don't in half precision."""


@pytest.mark.parametrize(
    ("dtype", "name"), [(d, n) for d in DTYPES for n in ATTENTION if d != "float16" or n not in COMPUTES]
)
def test_parts_of_attention_with_large_scores_are_those_in_double_precision(dtype, name):
    weights = [jnp.array(numbers(WIDTH, WIDTH, key=key) / 2).astype(dtype) for key in (31, 32, 33, 36)]
    weights[0] *= 8
    x, y = (jnp.array(numbers(TOKENS, WIDTH, key=key)).astype(dtype) for key in (34, 35))

    def split(attention, dtype):
        own = [w.astype(dtype) for w in weights]
        with jax.numpy_dtype_promotion("standard"):
            found = jax.jit(duat.secant(lambda x: attention(x, *own)[-1].sum()))(x.astype(dtype), y.astype(dtype))
        assert found.unrecognised == {}
        return np.asarray(found.parts.astype(jnp.float64).sum(-1))

    found, expected = split(ATTENTION[name], dtype), split(attention_by_hand, "float64")
    eps = max(float(jnp.finfo(d).eps) for d in (dtype, COMPUTES.get(name, dtype)))
    assert np.abs(found - expected).max() <= 64 * eps * np.abs(expected).max()
