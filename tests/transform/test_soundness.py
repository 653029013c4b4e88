"""What a mark claims is proved: outer maps, offsets, activations, and what lies between two streams."""

import jax
import jax.numpy as jnp
import pytest
from helpers import close, make_input, weights_of

import duat_jax as duat
from duat_jax import hold, offset, stream, term

W = weights_of((6, 6))
B = weights_of((6,), key=3)

granularities = pytest.mark.parametrize("neurons", [True, False])


def claims(outer):
    return lambda x: (x + term(jnp.tanh, x @ W, "mlp", outer=lambda a: outer(a, x))).sum()


def of_another_term(x):
    gate = term(jnp.tanh, x, "other")
    return term(jnp.tanh, x @ W, "mlp", outer=lambda a: a @ W + gate).sum()


def of_an_earlier_step(x):
    def step(carry, _):
        x, earlier = carry
        kept = []
        x = x + term(jnp.tanh, x @ W, "mlp", outer=lambda a: (kept.append(a), a @ W + earlier)[1])
        return (x, kept[0]), None

    return jax.lax.scan(step, (x, jnp.zeros_like(x)), None, length=2)[0][0].sum()


CLAIMED_TOO_MUCH = {
    "an offset": (claims(lambda a, x: a @ W + offset(B, "out.bias")), r"\(offset 'out.bias'\): add it after the term"),
    "an activation": (claims(lambda a, x: jnp.tanh(a @ W)), "isn't linear in the activation: .*tanh"),
    "a product with itself": (claims(lambda a, x: a * a), "isn't linear in the activation: .*mul"),
    "the input": (claims(lambda a, x: x + a @ W), r"\(input\): add it after the term"),
    "a constant": (claims(lambda a, x: a @ W + B), r"adds a constant .*marked with offset\(b, name\)"),
    "a held summand": (claims(lambda a, x: a @ W + hold(jnp.exp(x), "gate")), "adds a constant"),
    "another term": (of_another_term, r"\(activation 'other'\): add it after the term"),
    "an earlier step": (of_an_earlier_step, r"\(activation 'mlp'\): add it after the term"),
}


@granularities
@pytest.mark.parametrize("what", CLAIMED_TOO_MUCH)
def test_an_outer_map_that_claims_what_isnt_its_own_is_refused(what, neurons):
    fn, message = CLAIMED_TOO_MUCH[what]
    with pytest.raises(duat.NotAffine, match=message) as raised:
        duat.decompose(fn, make_input(), by_neuron=neurons)
    assert "the outer map of term('mlp')" in str(raised.value)


def gated(x):
    gate = hold(jax.nn.sigmoid(x), "gate")
    return term(jnp.tanh, x @ W, "mlp", outer=lambda a: (gate * a) @ W)


def scanned(x):
    return jax.lax.scan(lambda x, w: (x + term(jnp.tanh, x, "mlp", outer=lambda a: a @ w), None), x, W[None] * 0.3)[0]


OWN = {
    "gated": gated,
    "scanned": scanned,
    "vmapped": lambda x: jax.vmap(gated)(x),
    "rematerialised": jax.checkpoint(gated),
    "jitted": jax.jit(gated),
    "without matrix": lambda x: term(jnp.tanh, x @ W, "mlp", outer=lambda a: jnp.cumsum(a, 0)[::-1]),
}


@granularities
@pytest.mark.parametrize("what", OWN)
def test_an_outer_map_of_its_own_is_accepted(what, neurons):
    fn, x = OWN[what], make_input()
    parts = duat.decompose(lambda x: fn(x)[-1].sum(), x, by_neuron=neurons)
    assert parts.completeness.verdict == "holds"
    close(sum(term.sum() for term in parts.terms.values()) + parts.input.sum(), fn(x)[-1].sum())


FLOWING_OFFSETS = {
    "input": lambda x: x + offset(jnp.exp(x), "b"),
    "a stopped input": lambda x: x + offset(jax.lax.stop_gradient(x), "b"),
    "a comparison": lambda x: x + offset((x > 0).astype(x.dtype), "b"),
    "activation 'mlp'": lambda x: x + offset(term(jnp.tanh, x, "mlp"), "b"),
    "offset 'a'": lambda x: x + offset(2 * offset(B, "a"), "b"),
}


@pytest.mark.parametrize("what", FLOWING_OFFSETS)
def test_an_offset_that_flows_is_refused(what):
    with pytest.raises(duat.NotAffine, match=r"offset\('b'\) depends on what flows") as raised:
        duat.decompose(lambda x: FLOWING_OFFSETS[what](x).sum(), make_input())
    assert (what if "'" in what else "input") in str(raised.value)


def test_an_offset_of_something_held_is_its_own_part():
    x = make_input()
    parts = duat.decompose(lambda x: (x + offset(hold(x.mean(0), "mean"), "b")).sum(), x)
    close(parts.offsets["b"], 4 * x.mean(0).sum())
    close(parts.input, x)


ROW = jnp.eye(4, 6, dtype=bool)
MIXING = {
    "softmax": jax.nn.softmax,
    "centred": lambda z: z - z.mean(-1, keepdims=True),
    "sort": jnp.sort,
    "flip": lambda z: z[::-1],
    "cumsum": lambda z: jnp.cumsum(z, 0),
    "roll": lambda z: jnp.roll(z, 1, -1),
    "matmul": lambda z: z @ W,
    "fft": lambda z: jnp.fft.fft(z).real,
    "argsort": lambda z: jnp.take_along_axis(z, jnp.argsort(z, -1), -1),
    "reshape": lambda z: jnp.tanh(z.reshape(6, 4)).T.reshape(4, 6),
    "transpose there and back": lambda z: (z.T + 0.0).reshape(4, 6),
    "masked": lambda z: jnp.where(ROW, z.sum(-1, keepdims=True), z),
    "only where a mask is": lambda z: jnp.where(jnp.zeros((4, 6), bool), z[::-1], z),
    "normalised": lambda z: z / jnp.abs(z).max(),
    "glu": lambda z: jnp.concatenate([jax.nn.glu(z), jax.nn.glu(z)], -1),
    "in a scan over rows": lambda z: jax.lax.scan(lambda c, r: (c + r, c + r), jnp.zeros(6), z)[1],
    "an unknown number of steps": lambda z: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, z),
    "a choice by its entries": lambda z: jax.lax.cond(z.sum() > 0, jnp.tanh, jnp.sin, z),
}


@pytest.mark.parametrize("where", ["plain", "vmapped"])
@pytest.mark.parametrize("activation", MIXING)
def test_an_activation_that_mixes_entries_is_refused(activation, where):
    def fn(x):
        if where == "vmapped":
            return jax.vmap(lambda z: term(MIXING[activation], z, "mlp"))(x[None]).sum()
        return term(MIXING[activation], x, "mlp").sum()

    with pytest.raises(duat.NotAffine, match=r"the activation of term\('mlp'\) isn't elementwise"):
        duat.decompose(fn, make_input())


def of_another(x):
    gate = term(jnp.tanh, x, "gate")
    return term(lambda z: z * gate, x @ W, "mlp")


SEES_MORE = {
    "input": lambda x: term(lambda z: z * x, x @ W, "mlp"),
    "its sum": lambda x: term(lambda z: z * x.sum(), x @ W, "mlp"),
    "another term": of_another,
    "inside a jit": lambda x: term(jax.jit(lambda z: jnp.tanh(z) + x), x @ W, "mlp"),
    "a loop's carry": lambda x: term(lambda z: jax.lax.fori_loop(0, 2, lambda i, a: a + x, z), x @ W, "mlp"),
}


@pytest.mark.parametrize("what", SEES_MORE)
def test_an_activation_that_sees_more_than_its_pre_activation_is_refused(what):
    with pytest.raises(duat.NotAffine, match=r"activation of term\('mlp'\).*something else that flows"):
        duat.decompose(lambda x: SEES_MORE[what](x).sum(), make_input())


@jax.custom_jvp
def with_its_own_derivative(z):
    return jnp.tanh(z)


with_its_own_derivative.defjvp(lambda z, dz: (with_its_own_derivative(*z), dz[0]))


@pytest.mark.parametrize("jitted", [False, True])
def test_an_activation_that_takes_a_bias_as_its_own_is_refused(jitted):
    bias = (jax.jit if jitted else lambda f: f)(lambda: offset(B, "b"))
    with pytest.raises(duat.NotAffine, match=r"since it contains offset\('b'\)"):
        duat.decompose(lambda x: term(lambda z: jnp.tanh(z) + bias(), x, "mlp").sum(), make_input())


NAMES = (
    "relu relu6 sigmoid softplus soft_sign silu log_sigmoid leaky_relu hard_sigmoid hard_silu hard_tanh elu celu selu"
    " gelu squareplus mish identity sparse_plus sparse_sigmoid"
)
LENGTH = jnp.array([3])
ELEMENTWISE = {name: getattr(jax.nn, name) for name in NAMES.split()} | {
    "a slope per neuron": lambda z: jnp.where(z > 0, z, B * z),
    "where": lambda z: jnp.where(z > 0, z, 0.0),
    "its own derivative": with_its_own_derivative,
    "a loop": lambda z: jax.lax.fori_loop(0, 3, lambda i, a: jnp.tanh(a) + z, z),
    "a while with a counter": lambda z: jax.lax.while_loop(
        lambda c: c[1] < LENGTH[0], lambda c: (jnp.tanh(c[0]), c[1] + 1), (z, 0)
    )[0],
    "a polynomial": lambda z: jnp.polyval(jnp.array([1.0, 2.0, 3.0]), z),
    "a logarithm": lambda z: jnp.log2(2.0 + z * z),
    "by entries": jax.vmap(jax.vmap(jnp.tanh)),
    "a derivative": jax.vmap(jax.vmap(jax.grad(jnp.sin))),
    "jitted": jax.jit(lambda z: jnp.clip(z, -1, 1)),
}


@pytest.mark.parametrize("activation", ELEMENTWISE)
def test_an_elementwise_activation_is_accepted_at_any_shape(activation):
    def fn(x):
        return term(ELEMENTWISE[activation], x @ W, "mlp")

    x = make_input()
    parts = duat.decompose(lambda x: fn(x).sum(), x)
    close(parts.terms["mlp"], ELEMENTWISE[activation](x @ W))

    if activation not in ("by entries", "a derivative"):
        parts = duat.decompose(lambda x: jax.vmap(fn, in_axes=1, out_axes=1)(x.T).sum(), x)
        assert parts.completeness.verdict == "holds"


def chain(x):
    """Two layers, each of whose terms sees its own stream alone."""
    for i in range(2):
        x = stream(x, "layer")
        x = x + term(jnp.tanh, x @ W, f"mlp{i}", outer=lambda a: a @ W) + offset(B, "bias")
    return stream(x, "layer")


def dense(x):
    """As in a DenseNet: every layer sees all earlier streams."""
    seen = []
    for i in range(3):
        seen.append(stream(x, "layer"))
        x = x + term(jnp.tanh, sum(seen) @ W, f"mlp{i}")
    return stream(x, "layer")


def dense_in_a_scan(x):
    def step(carry, w):
        x, older = carry
        x = stream(x, "layer")
        return (x + term(jnp.tanh, x @ w, "mlp") + 0.5 * older, x), None

    return stream(jax.lax.scan(step, (x, x), jnp.stack([W] * 3) / 3)[0][0], "layer")


def with_x0(x):
    y = stream(x, "layer")
    y = stream(y + term(jnp.tanh, y @ W, "mlp"), "layer")
    return stream(y + term(jnp.tanh, y @ W, "mlp") + x @ W, "layer")


def with_an_earlier_term(x):
    x = stream(x, "layer")
    a = term(jnp.tanh, x @ W, "one")
    x = stream(x + a, "layer")
    return stream(x + term(jnp.tanh, x @ W, "two") + a @ W, "layer")


def in_nested_scans(x):
    def inner(carry, w):
        x, first = carry
        x = stream(x, "layer")
        return (x + term(jnp.tanh, x @ w, "mlp") + 0.1 * first, first), None

    def outer(x, w):
        return jax.lax.scan(inner, (x, x), w)[0][0], None

    return stream(jax.lax.scan(outer, x, jnp.stack([jnp.stack([W] * 2)] * 2) / 3)[0], "layer")


SKIPS = {dense: (2, 3), dense_in_a_scan: (2, 3), with_x0: (2,), with_an_earlier_term: (2,), in_nested_scans: (2, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("fn", SKIPS, ids=lambda fn: fn.__name__)
def test_a_layer_that_sees_more_than_its_stream_is_no_residual_term(fn):
    form = duat.unroll(fn, make_input())
    assert form.completeness().verdict == "holds"
    for i in SKIPS[fn]:
        with pytest.raises(duat.DuatError, match=r"is no residual term, since it depends on"):
            form.residual_term(i)


@pytest.mark.parametrize("jitted", [False, True])
def test_a_layer_that_sees_its_stream_alone_is_one_residual_term(jitted):
    x = make_input()
    form = (jax.jit if jitted else lambda f: f)(lambda x: duat.unroll(chain, x))(x)
    for i in (1, 2):
        layer = form.residual_term(i)
        before = x if i == 1 else form.recording.at(form.streams[1])
        close(
            layer.path(before) + layer.path_bias + layer.outer(jnp.tanh(layer.inner(before))),
            form.recording.at(form.streams[i]),
        )
        assert form.layer_completeness(i).verdict == "holds"


def test_two_parallel_terms_are_one_layer_and_a_chain_of_two_isnt():
    def parallel(x):
        x = stream(x, "s")
        return stream(x + term(jnp.tanh, x @ W, "a") + term(jax.nn.gelu, x[:, :3], "b", outer=lambda a: a @ W[:3]), "s")

    def chained(x):
        x = stream(x, "s")
        x = x + term(jnp.tanh, x @ W, "a")
        return stream(x + term(jax.nn.gelu, x @ W, "b"), "s")

    x = make_input()
    form = duat.unroll(parallel, x)
    layer = form.residual_term(1)
    a, b = layer.terms
    expected = layer.path(x) + layer.path_bias + a.outer(jnp.tanh(a.inner(x))) + b.outer(jax.nn.gelu(b.inner(x)))
    close(expected, parallel(x))
    assert form.layer_completeness(1).verdict == "holds"
    with pytest.raises(duat.DuatError, match="has 2 terms, not one"):
        _ = layer.outer
    with pytest.raises(duat.DuatError, match=r"depends on activation a too"):
        duat.unroll(chained, x).residual_term(1)
