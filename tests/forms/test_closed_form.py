"""The closed form read from record/replay against the papers' Kronecker forms and recursions, at every depth."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from functions import scan_of
from helpers import BLOCK_NAMES, close, far, make_input, make_stack, recorded

import duat_jax as duat
from duat_jax.nn import ACTIVATIONS
from duat_jax.reference.blocks import residual_terms
from duat_jax.reference.dense import vec
from duat_jax.reference.recursions import unroll_terms
from duat_jax.verification.routes import held_by_layer

LAYERS = 3


@pytest.fixture(params=BLOCK_NAMES, scope="module")
def case(request):
    """A stack, its input, its form by record/replay and its forms by the recursions."""
    stack, x = make_stack(request.param, LAYERS, activation="sigmoid"), make_input(3)
    form = duat.unroll(stack, x)
    terms = residual_terms(stack, held_by_layer(form.dynamics, LAYERS))
    return stack, x, form, unroll_terms(terms, ACTIVATIONS["sigmoid"], vec(x))


def test_the_recursions_give_every_stream_of_the_plain_pass(case):
    stack, x, form, recursion = case
    for i, unrolled in enumerate(recursion):
        close(unrolled.evaluate(vec(x)), form.dynamics.streams[f"layer[{i}]"])
    close(recursion[-1].evaluate(vec(x)), stack(x))


@pytest.mark.parametrize("i", range(LAYERS + 1))
def test_parameters_of_a_stream_are_those_of_the_recursions(case, i):
    _, _, form, recursion = case
    close(form.input_map(i).dense(), recursion[i].input)
    close(form.bias(i), recursion[i].bias)
    close(form.term_sum(i), recursion[i].term_sum())
    for j in range(i):
        close(form.outer_map(j + 1, i).dense(), recursion[i].terms[j].outer)


@pytest.mark.parametrize("j", range(LAYERS))
def test_parameters_of_a_term_are_those_of_the_recursions(case, j):
    _, _, form, recursion = case
    close(form.inner_map(j + 1).dense(), recursion[-1].terms[j].inner)
    close(form.inner_bias(j + 1), recursion[-1].terms[j].inner_bias)
    close(form.dynamics.activations[f"layers.{j}.mlp"], recursion[-1].terms[j].activation)


@pytest.mark.parametrize("i", range(1, LAYERS + 1))
def test_a_layers_own_residual_term_is_the_table_of_block_types(case, i):
    stack, _, form, _ = case
    expected = residual_terms(stack, held_by_layer(form.dynamics, LAYERS))[i - 1]
    term = form.residual_term(i)
    close(term.path.dense(), expected.path)
    close(term.path_bias, expected.path_bias)
    close(term.inner.dense(), expected.inner)
    close(term.inner_bias, expected.inner_bias)
    close(term.outer.dense(), expected.outer)


def test_the_form_evaluates_to_the_plain_pass_from_its_input_alone(case):
    stack, x, form, _ = case
    close(form.evaluate(), stack(x))
    close(form.value, stack(x))


def test_terms_carried_forwards_sum_with_input_and_bias_to_the_output(case):
    stack, x, form, recursion = case
    shares = jnp.stack(form.term_contributions())
    chex.assert_shape(shares, (LAYERS, *x.shape))
    for share, term in zip(shares, recursion[-1].terms, strict=True):
        close(share, term.outer @ term.activation)
    close(form.input_map()(x) + form.bias() + shares.sum(0), stack(x))


def test_contributions_pulled_back_are_those_carried_forwards(case):
    stack, x, form, _ = case
    readout = jax.random.normal(jax.random.key(5), x.shape)
    parts = duat.decompose(lambda x: (stack(x) * readout).sum(), x)
    forwards = (jnp.stack(form.term_contributions()) * readout).sum((1, 2))
    for j in range(LAYERS):
        close(parts.terms[f"layers.{j}.mlp"].sum(), forwards[j])
        by_matrix = form.outer_map(j + 1).dense().T @ vec(readout) * vec(form.dynamics.activations[f"layers.{j}.mlp"])
        close(parts.terms[f"layers.{j}.mlp"], by_matrix)
    close(parts.input, form.input_map().dense().T @ vec(readout) * vec(x))
    close(sum(parts.offsets.values()), (form.bias() * readout).sum())


def test_applied_to_another_input_it_keeps_its_parameters(case):
    """The reference is the paper's recursion, as dense matrices, with another input in the place of `x_0`."""
    stack, x, form, recursion = case
    other = jax.random.normal(jax.random.key(6), x.shape, x.dtype)
    last = recursion[-1]
    expected = form.input_map().dense() @ vec(other) + vec(form.bias())
    for j, term in enumerate(last.terms, 1):
        z = form.inner_map(j).dense() @ vec(other) + vec(form.inner_bias(j))
        expected = expected + term.outer @ vec(form.activate(j, z.reshape(form.inner_bias(j).shape)))
    close(vec(form.apply(other)), expected)
    close(form.apply(x), stack(x))
    assert np.abs(np.asarray(form.apply(other) - stack(other))).max() > 1e-3
    with pytest.raises(duat.DuatError, match="the form takes float64"):
        form.apply(other[1:])


@pytest.mark.slow
@pytest.mark.parametrize("block", ["pre-norm", "post-norm"])
def test_a_scanned_stack_has_the_form_of_a_python_loop(block):
    stack, x = make_stack(block, LAYERS), make_input(3)
    looped = duat.unroll(stack, x)
    scanned = duat.unroll(scan_of(stack), x)
    assert len(scanned.terms) == LAYERS
    assert len(scanned.streams) == LAYERS + 1
    close(scanned.evaluate(), stack(x))
    for i in range(LAYERS + 1):
        # In the scanned stack the first stream is marked before the scan, the others inside.
        close(scanned.input_map(i).dense(), looped.input_map(i).dense())
        close(scanned.bias(i), looped.bias(i))
    for j in range(LAYERS):
        close(scanned.inner_bias(j + 1), looped.inner_bias(j + 1))
        close(scanned.outer_map(j + 1).dense(), looped.outer_map(j + 1).dense())
        ours, theirs = scanned.residual_term(j + 1), looped.residual_term(j + 1)
        close(ours.path.dense(), theirs.path.dense())
        close(ours.outer.dense(), theirs.outer.dense())


@pytest.mark.parametrize("depth", [1, 2, 5, *(pytest.param(n, marks=pytest.mark.slow) for n in (12, 24))])
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_the_recursions_hold_at_depth(block, depth):
    stack, x = make_stack(block, depth), make_input(2)
    value, dynamics = jax.jit(recorded(stack))(x)
    form = unroll_terms(residual_terms(stack, held_by_layer(dynamics, depth)), ACTIVATIONS["gelu"], vec(x))[-1]
    close(form.evaluate(vec(x)), value, layers=depth)


def test_the_inner_bias_contains_the_earlier_terms(case):
    """With the earlier terms taken out it is another number: what makes the form dynamic even without attention."""
    stack, x, form, recursion = case
    static = residual_terms(stack, held_by_layer(form.dynamics, LAYERS))[1]
    without = static.inner_bias + static.inner @ recursion[1].bias
    assert far(without, vec(form.inner_bias(2)))


def test_a_residual_term_needs_its_streams():
    form = duat.unroll(lambda x: x + duat.term(jnp.tanh, x, "tanh"), make_input())
    with pytest.raises(duat.DuatError, match="no layer 1: 0 streams"):
        form.residual_term(1)


def two_terms_per_step(x, reverse):
    kernels = jax.random.normal(jax.random.key(8), (3, 6, 6)) / 3

    def step(x, w):
        x = duat.stream(x, "before")
        x = x + duat.term(jax.nn.gelu, x @ w, "a")
        x = duat.stream(x, "between")
        return x + duat.term(jax.nn.gelu, x @ w.T + 1.0, "b"), None

    return duat.stream(jax.lax.scan(step, x, kernels, reverse=reverse)[0], "after")


@pytest.mark.parametrize("reverse", [pytest.param(False, marks=pytest.mark.slow), True])
def test_terms_and_streams_of_a_scan_come_in_the_order_of_execution(reverse):
    def fn(x):
        return two_terms_per_step(x, reverse)

    x = make_input()
    form = duat.unroll(fn, x)
    order = [(site.key.name, index[0]) for site, index in form.terms]
    steps = [2, 1, 0] if reverse else [0, 1, 2]
    assert order == [(name, step) for step in steps for name in ("a", "b")]
    close(form.evaluate(), fn(x), layers=6)
    for i in range(1, len(form.streams)):
        term = form.residual_term(i)
        before, after = (form.recording.at(form.streams[k]) for k in (i - 1, i))
        activated = jax.nn.gelu(term.inner(before) + term.inner_bias)
        close(term.path(before) + term.path_bias + term.outer(activated), after)


def test_a_chain_of_two_terms_is_no_residual_term_and_a_layer_may_have_none():
    def fn(x):
        x = duat.stream(x, "s")
        x = x + duat.term(jnp.tanh, x, "t")
        x = x + duat.term(jnp.tanh, x, "t")
        return duat.stream(duat.stream(x, "s"), "s")

    form = duat.unroll(fn, make_input())
    with pytest.raises(duat.DuatError, match="is no residual term, since it depends on activation t too"):
        form.residual_term(1)
    assert form.residual_term(2).terms == ()
    close(form.residual_term(2).path.dense(), np.eye(24))
    for i in (0, 3):
        with pytest.raises(duat.DuatError, match=f"no layer {i}: 3 streams"):
            form.residual_term(i)


def test_two_terms_side_by_side_are_one_layer():
    w, v = (jax.random.normal(jax.random.key(k), (6, n)) / 3 for k, n in ((1, 5), (2, 7)))

    def fn(x):
        x = duat.stream(x, "s")
        return duat.stream(x + duat.term(jnp.tanh, x @ w, "a") @ w.T + duat.term(jnp.sin, x @ v, "b") @ v.T, "s")

    x = make_input()
    form = duat.unroll(fn, x)
    layer = form.residual_term(1)
    assert len(layer.terms) == 2
    close(layer.terms[1].outer.dense(), np.kron(np.eye(4), v))
    close(layer.terms[0].inner.dense(), np.kron(np.eye(4), w.T))
    assert form.layer_completeness(1).verdict == form.completeness().verdict == "holds"
    with pytest.raises(duat.DuatError, match="has 2 terms, not one"):
        _ = layer.outer


def test_a_form_without_terms():
    form = duat.unroll(lambda x: 2 * x, make_input())
    assert form.term_contributions() == []
    close(form.evaluate(), 2 * make_input())


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_the_form_of_a_model_evaluates_to_what_the_model_returns(name):
    model = duat.load(GOLDEN / name, dtype=jnp.float64)
    ids = jnp.array([5, 17, 3, 44])
    form = duat.unroll(model, ids)
    close(form.evaluate(), model(ids))
    close(form.value, model(ids))


def test_evaluating_a_scanned_stack_compiles_once():
    form, compiled = duat.unroll(scan_of(make_stack("pre-norm")), make_input()), []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    form.evaluate()
    first = len(compiled)
    form.evaluate()
    assert 0 < first <= 2
    assert len(compiled) == first
