"""A function that is written in another way has the same parts: one table for every piece of a network."""

import itertools
from functools import partial, reduce

import jax
import jax.numpy as jnp
import pytest
from helpers import near
from jax import lax

import duat_jax as duat
from tests.marking.comparison import assert_same_parts, parts_of, quick_or_slow
from tests.marking.plain_programs import (
    ATTENTIONS,
    GATED,
    HEADS,
    LAYERS,
    WIDTH,
    X,
    by_einsum,
    gated,
    gelu_by_hand,
    gpt,
    layer_norm,
    rms_norm,
    scanned,
)

ROOT_2 = 2**0.5


def layer(x, p, norm=layer_norm, attention=by_einsum, linear=jnp.matmul, biased=jnp.add, join=jnp.add, act=jax.nn.gelu):
    """Run a layer of the plain network, in which some operations are written in another way."""
    q, k, v, o, w, u, b, c, d, e = p
    mixed = attention(*(linear(norm(x, 1 + d, e), m) for m in (q, k, v)))
    x = join(x, biased(linear(mixed, o), d))
    return join(x, biased(linear(act(biased(linear(norm(x, 1 + e, d), w), b)), u), c))


def network(layers=lambda step, x: reduce(step, LAYERS, x), end=lambda x: x[-1, 1], **spelling):
    return lambda x: end(layers(partial(layer, **spelling), x))


STACKED = [jnp.stack(of) for of in zip(*LAYERS, strict=True)]


def at(k):
    return [of[k] for of in STACKED]


def in_one_matrix(x):
    """Run the network with queries, keys and values of each layer from one matrix."""
    for q, k, v, *rest in LAYERS:
        joined = jnp.concatenate([q, k, v], 1)
        d, e = rest[-2:]
        h = layer_norm(x, 1 + d, e) @ joined
        x = layer(x, (q, k, v, *rest), attention=lambda *_, h=h: by_einsum(*jnp.split(h, 3, -1)))
    return x[-1, 1]


def with_pattern(of):
    def mixed(q, k, v):
        q, k, v = (x.reshape(*x.shape[:-1], HEADS, -1) for x in (q, k, v))
        visible = jnp.tri(len(q), dtype=bool)
        return jnp.einsum("hqk,khd->qhd", of(q, k, visible), v).reshape(len(q), -1)

    return mixed


def scores(q, k):
    return jnp.einsum("qhd,khd->hqk", q, k)


SCALE = (WIDTH / HEADS) ** -0.5
PATTERNS = {
    "queries that are scaled": lambda q, k, visible: jax.nn.softmax(jnp.where(visible, scores(SCALE * q, k), -jnp.inf)),
    "a mask that is added": lambda q, k, visible: jax.nn.softmax(SCALE * scores(q, k) + jnp.where(visible, 0, -1e30)),
    "a mask of the softmax": lambda q, k, visible: jax.nn.softmax(SCALE * scores(q, k), where=visible),
    "exponentials of a log-softmax": lambda q, k, visible: jnp.exp(
        jax.nn.log_softmax(jnp.where(visible, SCALE * scores(q, k), -jnp.inf))
    ),
    "a logarithm of a sum": lambda q, k, visible: jnp.where(
        visible,
        jnp.exp(
            SCALE * scores(q, k)
            - jax.nn.logsumexp(jnp.where(visible, SCALE * scores(q, k), -jnp.inf), -1, keepdims=True)
        ),
        0,
    ),
}
NORMS = {
    "standardize": lambda x, scale, offset: jax.nn.standardize(x, epsilon=1e-5) * scale + offset,
    "the variance": lambda x, scale, offset: (
        (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + offset
    ),
    "a power": lambda x, scale, offset: (
        scale * (x - x.mean(-1, keepdims=True)) * (x.var(-1, keepdims=True) + 1e-5) ** -0.5 + offset
    ),
    "a matrix that centres": lambda x, scale, offset: (
        (x @ (jnp.eye(WIDTH) - 1 / WIDTH)) * (lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale) + offset
    ),
    "squares": lambda x, scale, offset: (
        offset
        + scale
        * (x - x.mean(-1, keepdims=True))
        / jnp.sqrt((x**2).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2 + 1e-5)
    ),
}
RMS = {
    "a quotient": lambda x: x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6),
    "a norm": lambda x: x * jnp.sqrt(WIDTH) / jnp.sqrt(jnp.linalg.norm(x, axis=-1, keepdims=True) ** 2 + WIDTH * 1e-6),
    "a product of entries": lambda x: x * (jnp.einsum("tf,tf->t", x, x)[:, None] / WIDTH + 1e-6) ** -0.5,
    "by rows": jax.vmap(lambda x: x * lax.rsqrt(jnp.vdot(x, x) / WIDTH + 1e-6)),
}
LINEAR = {
    "dot": jnp.dot,
    "einsum": partial(jnp.einsum, "...f,fg->...g"),
    "tensordot": lambda x, w: jnp.tensordot(x, w, 1),
    "transposed": lambda x, w: (w.T @ x.T).T,
    "by rows": lambda x, w: jax.vmap(lambda row: row @ w)(x),
    "by columns": lambda x, w: jax.vmap(lambda column: x @ column, 1, 1)(w),
    "a sum of products": lambda x, w: (x[..., None] * w).sum(-2),
    "in two halves": lambda x, w: x[:, : len(w) // 2] @ w[: len(w) // 2] + x[:, len(w) // 2 :] @ w[len(w) // 2 :],
    "a convolution": lambda x, w: lax.conv_general_dilated(x.T[None], w.T[..., None], (1,), "VALID")[0].T,
}
JOINED = {
    "the other way": lambda x, y: y + x,
    "a difference": lambda x, y: x - -y,
    "a sum of a stack": lambda x, y: jnp.stack([x, y]).sum(0),
}
BIASED = {
    "the other way": lambda x, b: b + x,
    "subtracted": lambda x, b: x - -b,
    "broadcast before": lambda x, b: x + jnp.tile(b, (len(x), 1)),
}
LAYERED = {
    "a scan": lambda step, x: lax.scan(lambda x, p: (step(x, p), None), x, STACKED)[0],
    "a scan that is unrolled": lambda step, x: lax.scan(lambda x, p: (step(x, p), None), x, STACKED, unroll=True)[0],
    "a scan of rematerialised layers": lambda step, x: lax.scan(
        jax.checkpoint(lambda x, p: (step(x, p), None)), x, STACKED
    )[0],
    "a loop that looks weights up": lambda step, x: lax.fori_loop(0, 3, lambda k, x: step(x, at(k)), x),
    "a while that counts": lambda step, x: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1], at(s[0]))), (0, x)
    )[1],
    "rematerialised": lambda step, x: reduce(jax.checkpoint(step), LAYERS, x),
    "in a jit": lambda step, x: jax.jit(lambda x: reduce(jax.jit(step), LAYERS, x))(x),
    "of a batch of texts": lambda step, x: jax.vmap(lambda x: reduce(step, LAYERS, x))(x[None])[0],
    "of a batch of texts in a scan": lambda step, x: lax.scan(
        lambda x, p: (jax.vmap(lambda x: step(x, p))(x), None), x[None], STACKED
    )[0][0],
}
ACTIVATIONS = {
    "relu": (jax.nn.relu, lambda z: jnp.maximum(z, 0)),
    "relu, where": (jax.nn.relu, lambda z: jnp.where(z > 0, z, 0)),
    "relu, a product": (jax.nn.relu, lambda z: z * (z > 0).astype(z.dtype)),
    "gelu": (jax.nn.gelu, gelu_by_hand),
    "gelu, exact": (partial(jax.nn.gelu, approximate=False), lambda z: z * (1 + lax.erf(z / ROOT_2)) / 2),
    "gelu, erfc": (partial(jax.nn.gelu, approximate=False), lambda z: 0.5 * lax.erfc(-z / ROOT_2) * z),
    "silu": (jax.nn.silu, lambda z: z / (1 + jnp.exp(-z))),
    "silu, tanh": (jax.nn.silu, lambda z: 0.5 * z * (jnp.tanh(0.5 * z) + 1)),
    "softplus": (jax.nn.softplus, lambda z: jnp.log(1 + jnp.exp(z))),
    "sigmoid": (jax.nn.sigmoid, lambda z: 1 / (1 + jnp.exp(-z))),
    "tanh": (jnp.tanh, lambda z: (jnp.exp(2 * z) - 1) / (jnp.exp(2 * z) + 1)),
    "elu": (jax.nn.elu, lambda z: jnp.where(z > 0, z, jnp.expm1(z))),
    "leaky relu": (jax.nn.leaky_relu, lambda z: jnp.maximum(z, 0.01 * z)),
    "squared relu": (lambda z: jax.nn.relu(z) ** 2, lambda z: jnp.where(z > 0, z * z, 0)),
    "relu 6": (jax.nn.relu6, lambda z: jnp.clip(z, 0, 6)),
}


PLAIN = network()
PAIRS = {
    **{f"attention: {name}": (gpt(of), gpt()) for name, of in ATTENTIONS.items()},
    **{f"pattern: {name}": (network(attention=with_pattern(of)), PLAIN) for name, of in PATTERNS.items()},
    "queries, keys and values in one": (in_one_matrix, PLAIN),
    **{f"norm: {name}": (network(norm=of), PLAIN) for name, of in NORMS.items()},
    **{
        f"RMS norm: {name}": tuple(
            network(norm=lambda x, s, b, of=of: of(x) * s) for of in (of, lambda x: rms_norm(x, 1))
        )
        for name, of in RMS.items()
    },
    **{f"product: {name}": (network(linear=of), PLAIN) for name, of in LINEAR.items()},
    **{f"stream: {name}": (network(join=of), PLAIN) for name, of in JOINED.items()},
    **{f"bias: {name}": (network(biased=of), PLAIN) for name, of in BIASED.items()},
    **{f"layers: {name}": (network(of), PLAIN) for name, of in LAYERED.items()},
    "layers: written out": (scanned, gpt()),
    **{f"activation: {name}": tuple(network(act=of) for of in pair) for name, pair in ACTIVATIONS.items()},
}
"""A function and the same one that is written in the usual way."""
SINGLE = "attention: by_library"
"""The pair of which JAX computes the pattern in single precision."""
QUICK = "attention: by_sums", "layers: a while that counts", "activation: relu, a product", "RMS norm: a norm"


@pytest.mark.parametrize("name", quick_or_slow(PAIRS, QUICK))
def test_what_is_written_otherwise_has_the_same_parts(name):
    (found, not_attributed), (expected, _) = (parts_of(duat.auto(fn), X) for fn in PAIRS[name])
    assert not not_attributed
    assert_same_parts(found, expected, within=1e-7 if name == SINGLE else 1e-12)


SUMS = {
    "relu": (lambda z: (z + jnp.abs(z)) / 2, lambda z: (z + duat.term(jnp.abs, z, "abs")) / 2),
    "sigmoid": (lambda z: (1 + jnp.tanh(z / 2)) / 2, lambda z: (1 + duat.term(jnp.tanh, z / 2, "tanh")) / 2),
    "softplus": (
        lambda z: jnp.log1p(jnp.exp(-jnp.abs(z))) + jnp.maximum(z, 0),
        lambda z: duat.term(lambda z: jnp.log1p(jnp.exp(-jnp.abs(z))), z, "smooth") + duat.term(jax.nn.relu, z, "relu"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
def test_an_activation_that_is_written_as_a_sum_has_the_parts_of_its_summands(name):
    """As a stream and a term have: other parts than those of the library's function."""
    unmarked, by_hand = (network(act=act) for act in SUMS[name])
    assert_same_parts(*(parts_of(duat.auto(fn), X)[0] for fn in (unmarked, by_hand)))


@pytest.mark.parametrize("name", GATED)
def test_factors_in_any_order_have_the_parts_of_marks_by_hand(name):
    by_hand = gated(lambda z, u: duat.term(jax.nn.silu, z, "silu") * duat.hold(u, "up"))
    marked = duat.auto(gated(GATED[name]))
    near(marked(X), by_hand(X), 1e-12)
    assert_same_parts(parts_of(marked, X)[0], parts_of(duat.auto(by_hand), X)[0])


def test_a_gate_is_held_and_its_factor_flows():
    by_hand = gated(lambda z, u: duat.hold(jax.nn.sigmoid(z), "gate") * u)
    marked = duat.auto(gated(lambda z, u: jax.nn.sigmoid(z) * u))
    assert_same_parts(parts_of(marked, X)[0], parts_of(duat.auto(by_hand), X)[0])


@pytest.mark.slow
def test_every_order_and_bracketing_of_a_gated_neuron_has_the_same_parts():
    expected = parts_of(duat.auto(gated(lambda z, u: jax.nn.silu(z) * u)), X)[0]
    for order in itertools.permutations(range(3)):
        for bracketed in (lambda a, b, c: a * b * c, lambda a, b, c: a * (b * c)):

            def neuron(z, u, order=order, bracketed=bracketed):
                factors = z, jax.nn.sigmoid(z), u
                return bracketed(*(factors[k] for k in order))

            assert_same_parts(parts_of(duat.auto(gated(neuron)), X)[0], expected)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
def test_a_scaled_activation_has_the_same_parts_in_any_order(order):
    """Its scale is computed from the activation, as a norm's is, and is no function of single entries."""

    def normed(multiplied):
        def fn(x):
            z = x * jax.nn.sigmoid(x)
            factors = x, jax.nn.sigmoid(x), lax.rsqrt((z * z).mean(-1, keepdims=True) + 1e-2)
            return multiplied(*(factors[k] for k in order))[-1, 1]

        return fn

    def by_hand(x):
        z = duat.term(jax.nn.silu, x, "silu")
        return (z * duat.hold(lax.rsqrt((z * z).mean(-1, keepdims=True) + 1e-2), "scale"))[-1, 1]

    expected = duat.decompose(by_hand, X)
    for multiplied in (lambda a, b, c: a * b * c, lambda a, b, c: a * (b * c)):
        assert_same_parts(parts_of(duat.auto(normed(multiplied)), X)[0], expected)
