"""One recording, many questions: any mark to any other, against dense Jacobians, through jit, vmap and scans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, make_input, make_stack, weights_of
from jax import lax

import duat_jax as duat
from duat_jax.forms.affine_form import collapsed_contributions
from duat_jax.forms.decomposition import contributions
from duat_jax.transform.query import linear_map

W = weights_of((6, 6)) / 3
KERNELS = jnp.stack([W, W.T, -W])
STEPS = len(KERNELS)


def block(x, w):
    x = duat.stream(x, "layer")
    z = duat.hold(jax.nn.sigmoid(x), "gate") * (x @ w) + duat.offset(W[0], "bias")
    return x + duat.term(jnp.tanh, z, "mlp") @ w.T


def looped(x):
    for w in KERNELS:
        x = block(x, w)
    return duat.stream(x, "last")


def scanned(x):
    return duat.stream(lax.scan(lambda x, w: (block(x, w), None), x, KERNELS)[0], "last")


def values(x):
    """Return streams, gates, pre-activations and activations of every layer by plain JAX."""
    rows = []
    for w in KERNELS:
        gate = jax.nn.sigmoid(x)
        z = gate * (x @ w) + W[0]
        rows.append((x, gate, z, jnp.tanh(z)))
        x = x + jnp.tanh(z) @ w.T
    return rows, x


def inner_of(rows, j):
    """The dense map from any earlier stream to the pre-activation of layer j."""
    return jax.jacobian(lambda x: rows[j][1] * (x @ KERNELS[j]))(rows[0][0]).reshape(24, 24)


def outer_of(j):
    """The dense map from the activation of layer j to any later stream."""
    return jax.jacobian(lambda a: a @ KERNELS[j].T)(jnp.ones((4, 6))).reshape(24, 24)


@pytest.fixture(params=[looped, scanned], ids=["looped", "scanned"], scope="module")
def recording(request):
    return jax.jit(duat.record(request.param))(make_input())


def test_streams_and_terms_come_in_order_and_have_their_values(recording):
    rows, last = values(make_input())
    assert len(recording.streams) == STEPS + 1
    assert len(recording.terms) == STEPS
    for step, (stream, _, _, _) in zip(recording.streams, rows):
        close(recording.at(step), stream)
    close(recording.at(recording.streams[-1]), last)
    for step, (_, _, z, _) in zip(recording.terms, rows):
        close(recording.at(step), z)


@pytest.mark.parametrize("j", range(STEPS))
@pytest.mark.parametrize("i", range(STEPS))
def test_any_stream_to_any_pre_activation(recording, i, j):
    rows, _ = values(make_input())
    found = linear_map(recording, recording.streams[i], recording.terms[j])
    expected = inner_of(rows, j) if i <= j else jnp.zeros((24, 24))
    close(found.dense(), expected)
    close(found.T.dense(), expected.T)


@pytest.mark.parametrize("j", range(STEPS + 1))
@pytest.mark.parametrize("i", range(STEPS))
def test_any_stream_to_any_stream_across_several_steps(recording, i, j):
    found = linear_map(recording, recording.streams[i], recording.streams[j])
    # A stream to itself is the identity too: what is added there is read there.
    expected = jnp.eye(24) if i <= j else jnp.zeros((24, 24))
    close(found.T.dense(), expected.T)
    close(found.dense(), expected)


@pytest.mark.parametrize("j", range(STEPS + 1))
@pytest.mark.parametrize("i", range(STEPS))
def test_any_activation_to_any_stream(recording, i, j):
    term = recording.terms[i]
    source = term._replace(site=term.site._replace(kind="activation"))
    found = linear_map(recording, source, recording.streams[j])
    close(found.dense(), outer_of(i) if i < j else jnp.zeros((24, 24)))


def test_what_isnt_read_is_said(recording):
    activation = recording.terms[0]._replace(site=recording.terms[0].site._replace(kind="activation"))
    with pytest.raises(duat.DuatError, match="activation .*mlp.* can't be the target of a linear map: choose one of"):
        linear_map(recording, None, activation)


@pytest.mark.slow
def test_many_read_outs_by_vmap_are_those_asked_one_by_one(recording):
    readouts = jax.random.normal(jax.random.key(9), (5, 4, 6))
    many = jax.jit(jax.vmap(lambda u: duat.contributions(recording, u)))(readouts)
    assert many.completeness.verdict == "holds"
    for k, readout in enumerate(readouts):
        one = duat.contributions(recording, readout)
        close(many.input[k], one.input)
        jax.tree.map(lambda a, b, k=k: close(a[k], b), many.terms, one.terms)
    for target in (*recording.streams, *recording.terms):
        assert duat.contributions(recording, readouts[0], target=target).completeness.verdict == "holds"


def test_a_recording_is_mapped_and_passed_on():
    xs = jnp.stack([make_input(key=k) for k in range(3)])
    recordings = jax.jit(jax.vmap(duat.record(scanned)))(xs)
    ask = jax.jit(jax.vmap(lambda recording: duat.contributions(recording, jnp.ones((4, 6)))))
    parts = ask(recordings)
    assert parts.completeness.verdict == "holds"
    for k, x in enumerate(xs):
        close(parts.input[k], duat.decompose(lambda x: scanned(x).sum(), x).input)


def test_a_question_asked_twice_is_traced_once():
    traces = []

    def counted(x):
        traces.append(None)
        return scanned(x)

    recording = duat.record(counted)(make_input())
    form = duat.results.ClosedForm(recording)
    readout = jnp.ones((4, 6))
    for _ in range(2):
        duat.contributions(recording, readout)
        form.evaluate()
        linear_map(recording, recording.streams[0], recording.streams[2])(make_input())
    assert len(traces) == 1


def test_forms_pass_through_jit_and_vmap():
    xs = jnp.stack([make_input(key=k) for k in range(3)])
    forms = jax.jit(jax.vmap(lambda x: duat.unroll(scanned, x)))(xs)
    close(jax.vmap(lambda form: form.evaluate())(forms), jax.vmap(scanned)(xs))
    collapses = jax.jit(jax.vmap(lambda x: duat.collapse(scanned, x)))(xs)
    close(jax.vmap(lambda c, x: c.linear(x) + c.bias)(collapses, xs), jax.vmap(scanned)(xs), layers=6)
    maps = jax.jit(jax.vmap(lambda x: duat.unroll(scanned, x).inner_map(2)))(xs)
    close(jax.vmap(lambda m: m.dense())(maps)[1], duat.unroll(scanned, xs[1]).inner_map(2).dense())


def test_an_activation_is_called_once_in_a_plain_pass_and_makes_no_derivative():
    calls = []

    def activation(z):
        calls.append(type(z).__name__)
        return jnp.tanh(z)

    x = make_input()
    duat.term(activation, x, "mlp")
    assert len(calls) == 1
    assert "JVP" not in calls[0]
    # A loop of unknown length has no derivative, and a callback none either: a plain pass needs none.
    close(
        duat.term(lambda z: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 2), (0, z))[1], x, "w"),
        4 * x,
    )
    close(
        duat.term(lambda z: jax.pure_callback(lambda v: v + 1, jax.ShapeDtypeStruct(z.shape, z.dtype), z), x, "c"),
        x + 1,
    )


PLACES = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (2, 1)]


@pytest.mark.parametrize(("inside", "outside"), PLACES)
def test_wherever_vmap_puts_its_axis_a_term_has_its_tokens(inside, outside):
    """Without neurons a term is split over tokens: the axes before the features."""

    def fn(x):
        return duat.term(jnp.tanh, x @ W, "mlp", outer=lambda a: a @ W)

    xs = jnp.moveaxis(jnp.stack([make_input(key=k) for k in range(3)]), 0, inside)
    weights = jnp.moveaxis(jax.random.normal(jax.random.key(5), (3, 4, 6)), 0, outside)
    mapped = jax.vmap(fn, in_axes=inside, out_axes=outside)
    parts = duat.decompose(lambda xs: (weights * mapped(xs)).sum(), xs, by_neuron=False)
    assert parts.completeness.verdict == "holds"
    assert parts.terms["mlp"].shape == (3, 4)
    for k in range(3):
        x, w = jnp.moveaxis(xs, inside, 0)[k], jnp.moveaxis(weights, outside, 0)[k]
        close(parts.terms["mlp"][k], (w * fn(x)).sum(-1))


@pytest.mark.slow
def test_nested_vmaps_and_a_scan_have_their_axes_in_front():
    def fn(x):
        return lax.scan(lambda x, w: (x + duat.term(jnp.tanh, x, "mlp", outer=lambda a: a @ w), None), x, KERNELS)[0]

    xs = jax.random.normal(jax.random.key(2), (4, 2, 6, 5))  # tokens, one batch, features, another batch
    mapped = jax.vmap(jax.vmap(fn, in_axes=2, out_axes=0), in_axes=1, out_axes=2)
    parts = duat.decompose(lambda xs: mapped(xs).sum(), xs, by_neuron=False)
    assert parts.completeness.verdict == "holds"
    assert parts.terms["mlp"].shape == (STEPS, 5, 2, 4) or parts.terms["mlp"].shape == (STEPS, 2, 5, 4)
    table = parts.terms["mlp"] if parts.terms["mlp"].shape[1] == 2 else jnp.swapaxes(parts.terms["mlp"], 1, 2)
    for i in range(2):
        for j in range(5):
            alone = duat.decompose(lambda x: fn(x).sum(), xs[:, i, :, j], by_neuron=False)
            close(table[:, i, j], alone.terms["mlp"])


def test_evaluating_the_form_of_a_function_of_several_results_keeps_their_structure():
    def fn(x):
        y = x + duat.term(jnp.tanh, x @ W, "mlp")
        return {"hidden": y, "logits": (y[-1], y.sum())}

    x = make_input()
    form = duat.unroll(fn, x)
    jax.tree.map(close, form.evaluate(), fn(x))


@pytest.mark.parametrize("ask", [duat.decompose, duat.collapse, duat.unroll])
def test_token_ids_have_no_form(ask):
    table = jax.random.normal(jax.random.key(0), (9, 6))
    with pytest.raises(duat.DuatError, match="whole numbers, and nothing flows from those: begin at the embeddings"):
        ask(lambda ids: table[ids].sum(), jnp.array([1, 2, 3]))


def test_a_long_scan_with_marks_is_checked_in_seconds():
    def fn(x):
        return lax.scan(lambda x, _: (0.9 * x + duat.term(jnp.tanh, x, "mlp"), None), x, None, length=2000)[0].sum()

    assert duat.decompose(fn, jnp.ones(3)).terms["mlp"].shape == (2000, 3)


@pytest.mark.parametrize("question", [contributions, collapsed_contributions])
def test_a_readout_of_another_shape_is_named_and_one_of_another_dtype_is_converted(question):
    recording = duat.record(make_stack("pre-norm"))(make_input())
    with pytest.raises(duat.DuatError, match=r"of shape \(6,\), but the value that is read is of shape \(4, 6\)"):
        question(recording, jnp.ones(6))
    with pytest.raises(duat.DuatError, match="read-out is of shape"):
        question(recording, {"x": jnp.ones((4, 6))})
    with pytest.raises(duat.DuatError, match="complex, but the value is real"):
        question(recording, jnp.ones((4, 6), complex))
    ours, theirs = (question(recording, jnp.ones((4, 6), dtype)).input for dtype in (jnp.int8, jnp.float64))
    np.testing.assert_array_equal(ours, theirs)
