"""Functions without marks in Flax and Equinox, under JAX's transformations, in half precision and of many layers."""

from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from helpers import near
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import duat_jax as duat
from duat_jax.forms.completeness import FAILS, HOLDS
from tests.marking.plain_programs import GATED, HEADS, NEURONS, SQUARE, TALL, WIDE, WIDTH, X, gated, layer_norm, split
from tests.marking.plain_programs import weights as drawn

NAMES = "query", "key", "value", "out", "inner", "outer"
W = dict(zip((*NAMES, "bias"), drawn(*[SQUARE] * 4, WIDE, TALL, (NEURONS,)), strict=True))
BY_HEAD = dict.fromkeys(NAMES[:3], (WIDTH, HEADS, -1)) | {"out": (HEADS, -1, WIDTH)}
KERNELS = {name: W[name].reshape(BY_HEAD.get(name, W[name].shape)) for name in NAMES}


def plain(x):
    h = layer_norm(x, 1.0, 0.0)
    q, k, v = (split(h @ W[name]) for name in NAMES[:3])
    pattern = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k) / jnp.sqrt(WIDTH / HEADS))
    x = x + jnp.einsum("hqk,khd->qhd", pattern, v).reshape(x.shape) @ W["out"]
    return x + jax.nn.gelu(layer_norm(x, 1.0, 0.0) @ W["inner"] + W["bias"]) @ W["outer"]


def in_nnx():
    rngs, options = nnx.Rngs(0), {"param_dtype": jnp.float64, "use_bias": False}
    norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, param_dtype=jnp.float64, rngs=rngs)
    attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs, **options)
    inner = nnx.Linear(WIDTH, NEURONS, param_dtype=jnp.float64, rngs=rngs)
    outer = nnx.Linear(NEURONS, WIDTH, rngs=rngs, **options)
    inner.bias[...] = W["bias"]
    layers = {name: getattr(attention, name) for name in NAMES[:4]} | {"inner": inner, "outer": outer}
    for name, layer in layers.items():
        layer.kernel[...] = KERNELS[name]

    def fn(x):
        x = x + attention(norm(x))
        return x + outer(nnx.gelu(inner(norm(x))))

    return fn


class Linen(linen.Module):
    """The network in Flax Linen."""

    @linen.compact
    def __call__(self, x):
        """Return the last stream."""
        options = {"param_dtype": jnp.float64, "use_bias": False}
        norms = [linen.LayerNorm(1e-5, use_scale=False, **options) for _ in range(2)]
        x = x + linen.MultiHeadDotProductAttention(HEADS, name="attention", **options)(norms[0](x))
        activated = linen.gelu(linen.Dense(NEURONS, name="inner", param_dtype=jnp.float64)(norms[1](x)))
        return x + linen.Dense(WIDTH, name="outer", **options)(activated)


def in_linen():
    layers = {name: {"kernel": kernel} for name, kernel in KERNELS.items()}
    layers["inner"]["bias"] = W["bias"]
    params = {"attention": {name: layers.pop(name) for name in NAMES[:4]}, **layers}
    return lambda x: Linen().apply({"params": params}, x)


def in_equinox():
    key = jax.random.key(0)
    attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, dtype=jnp.float64, key=key)
    kernels = [W[name].T for name in NAMES[:4]]
    attention = eqx.tree_at(
        lambda a: [p.weight for p in (a.query_proj, a.key_proj, a.value_proj, a.output_proj)], attention, kernels
    )
    inner = eqx.nn.Linear(WIDTH, NEURONS, dtype=jnp.float64, key=key)
    inner = eqx.tree_at(lambda layer: (layer.weight, layer.bias), inner, (W["inner"].T, W["bias"]))
    outer = eqx.nn.Linear(NEURONS, WIDTH, use_bias=False, dtype=jnp.float64, key=key)
    outer = eqx.tree_at(lambda layer: layer.weight, outer, W["outer"].T)
    norm = eqx.nn.LayerNorm(WIDTH, dtype=jnp.float64)

    def fn(x):
        h = jax.vmap(norm)(x)
        x = x + attention(h, h, h)
        return x + jax.vmap(lambda x: outer(jax.nn.gelu(inner(norm(x)))))(x)

    return fn


LIBRARIES = {"Flax NNX": in_nnx, "Flax Linen": in_linen, "Equinox": in_equinox}


@pytest.mark.parametrize("name", LIBRARIES)
def test_layers_of_a_library_have_the_parts_of_plain_code(name):
    within = 1e-6 if name == "Flax NNX" else 1e-12  # its attention computes the pattern in single precision
    with jax.numpy_dtype_promotion("standard"):
        fn = LIBRARIES[name]()
        near(fn(X), plain(X), within)
        found, expected = (duat.decompose(lambda x, f=f: f(x)[-1, 0], X, marks="auto") for f in (fn, plain))
    assert found.completeness.verdict == HOLDS
    near(found.input, expected.input, within)
    near(*([np.asarray(part) for part in f.terms.values()] for f in (found, expected)), within)


MESH = jax.make_mesh((1,), ("devices",), axis_types=(AxisType.Auto,))
TRANSFORMED = {
    "jit": lambda form: jax.jit(form)(X),
    "vmap": lambda form: jax.tree.map(lambda part: part[1], jax.vmap(form)(jnp.stack([2 * X, X]))),
    "shard_map": lambda form: jax.shard_map(form, mesh=MESH, in_specs=P(), out_specs=P())(X),
    "an array on a mesh": lambda form: form(jax.device_put(X, NamedSharding(MESH, P("devices")))),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_parts_are_the_same_under_a_transformation(name):
    def form(x):
        return duat.decompose(gated(GATED["z (σ(z) u)"]), x, marks="auto")

    jax.tree.map(lambda a, b: near(a, b, 1e-12), TRANSFORMED[name](form), form(X))


def test_parts_in_half_precision_are_those_of_marks_by_hand():
    by_hand = gated(lambda z, u: duat.term(jax.nn.silu, z, "silu") * duat.hold(u, "up"), jnp.bfloat16)
    found = duat.decompose(gated(lambda z, u: jax.nn.silu(z) * u, jnp.bfloat16), X.astype(jnp.bfloat16), marks="auto")
    expected = duat.decompose(duat.auto(by_hand), X.astype(jnp.bfloat16))
    assert found.completeness.verdict != FAILS
    for kind in ("input", "terms", "offsets"):
        parts, others = (jax.tree.leaves(getattr(f, kind)) for f in (found, expected))
        jax.tree.map(np.testing.assert_array_equal, parts, others)


DEEP = jnp.stack([drawn(WIDE, key=key)[0] for key in range(48)])


def layer(x, w):
    return x + jax.nn.relu(x @ w) @ w.T


@pytest.mark.parametrize(
    ("fn", "terms", "streams"),
    [
        (lambda x: reduce(layer, DEEP, x)[-1, 0], 48, 49),
        (lambda x: lax.scan(lambda x, w: (layer(x, w), None), x, DEEP)[0][-1, 0], 1, 1),
    ],
    ids=["written out", "scanned"],
)
def test_forty_eight_layers_are_planned(fn, terms, streams):
    """Of a scan's steps, which have marks of their own, one body is planned."""
    chosen = duat.auto(fn).choices(X)
    assert (chosen.terms, chosen.streams, chosen.not_attributed) == (terms, streams, ())
