"""The closed form read from record/replay against the papers' Kronecker forms and recursions, at every depth."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BLOCK_NAMES, close, make_input, make_stack
from test_models import GOLDEN
from test_record_replay import scan_of

import duat_jax as duat
from duat_jax.matrix_vector import vec
from duat_jax.nn import ACTIVATIONS
from duat_jax.recursion import unroll_terms
from duat_jax.residual import residual_terms

LAYERS = 3


@pytest.fixture(params=BLOCK_NAMES, scope="module")
def case(request):
    """A stack, its input, its form by record/replay and its forms by the recursions."""
    stack, x = make_stack(request.param, LAYERS, activation="sigmoid"), make_input(3)
    form = duat.unroll(stack, x)
    return stack, x, form, unroll_terms(residual_terms(stack, form.dynamics), ACTIVATIONS["sigmoid"], vec(x))


def test_the_recursions_give_every_stream_of_the_plain_pass(case):
    stack, x, form, recursion = case
    for i, unrolled in enumerate(recursion):
        close(unrolled.evaluate(vec(x)), form.dynamics.streams[f"layer/{i}"])
    close(recursion[-1].evaluate(vec(x)), stack(x))


@pytest.mark.parametrize("i", range(LAYERS + 1))
def test_parameters_of_a_stream_are_those_of_the_recursions(case, i):
    _, _, form, recursion = case
    close(form.input_map(i).dense(), recursion[i].input)
    close(form.bias(i), recursion[i].bias)
    close(form.term_sum(i), recursion[i].term_sum())
    for j in range(i):
        close(form.outer_map(j, i).dense(), recursion[i].terms[j].outer)


@pytest.mark.parametrize("j", range(LAYERS))
def test_parameters_of_a_term_are_those_of_the_recursions(case, j):
    _, _, form, recursion = case
    close(form.inner_map(j).dense(), recursion[-1].terms[j].inner)
    close(form.inner_bias(j), recursion[-1].terms[j].inner_bias)
    close(form.dynamics.activations[f"mlp/{j}"], recursion[-1].terms[j].activation)


@pytest.mark.parametrize("i", range(1, LAYERS + 1))
def test_a_layers_own_residual_term_is_the_table_of_block_types(case, i):
    stack, _, form, _ = case
    expected = residual_terms(stack, form.dynamics)[i - 1]
    term = form.residual_term(i)
    close(term.path.dense(), expected.path.matrix)
    close(term.path_bias, expected.path.offset)
    close(term.inner.dense(), expected.inner.matrix)
    close(term.inner_bias, expected.inner.offset)
    close(term.outer.dense(), expected.outer)


def test_the_form_evaluates_to_the_plain_pass_from_its_input_alone(case):
    stack, x, form, _ = case
    close(form.evaluate(), stack(x))
    close(form.value, stack(x))


def test_terms_carried_forwards_sum_with_input_and_bias_to_the_output(case):
    stack, x, form, recursion = case
    shares = form.term_shares()
    chex.assert_shape(shares, (LAYERS, *x.shape))
    for share, term in zip(shares, recursion[-1].terms, strict=True):
        close(share, term.outer @ term.activation)
    close(form.input_map()(x) + form.bias() + shares.sum(0), stack(x))


def test_contributions_pulled_back_are_those_carried_forwards(case):
    stack, x, form, _ = case
    readout = jax.random.normal(jax.random.key(5), x.shape)
    parts = duat.decompose(lambda x: (stack(x) * readout).sum(), x)
    forwards = (form.term_shares() * readout).sum((1, 2))
    for j in range(LAYERS):
        close(parts.terms[f"mlp/{j}"].sum(), forwards[j])
        by_matrix = form.outer_map(j).dense().T @ vec(readout) * vec(form.dynamics.activations[f"mlp/{j}"])
        close(parts.terms[f"mlp/{j}"], by_matrix)
    close(parts.input, form.input_map().dense().T @ vec(readout) * vec(x))
    close(sum(parts.offsets.values()), (form.bias() * readout).sum())


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
        close(scanned.inner_bias(j), looped.inner_bias(j))
        close(scanned.outer_map(j).dense(), looped.outer_map(j).dense())
        ours, theirs = scanned.residual_term(j + 1), looped.residual_term(j + 1)
        close(ours.path.dense(), theirs.path.dense())
        close(ours.outer.dense(), theirs.outer.dense())


@pytest.mark.parametrize("depth", [1, 2, 5, 12, 24])
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_the_recursions_hold_at_depth(block, depth):
    stack, x = make_stack(block, depth), make_input(2)
    value, dynamics = jax.jit(duat.record(stack))(x)
    form = unroll_terms(residual_terms(stack, dynamics), ACTIVATIONS["gelu"], vec(x))[-1]
    close(form.evaluate(vec(x)), value, layers=depth)


def test_the_inner_bias_contains_the_earlier_terms(case):
    """With the earlier terms taken out it is another number: what makes the form dynamic even without attention."""
    stack, x, form, recursion = case
    static = residual_terms(stack, form.dynamics)[1].inner
    without = static.offset + static.matrix @ recursion[1].bias
    assert not np.allclose(without, vec(form.inner_bias(1)))


def test_the_form_of_a_function_of_two_arrays_is_an_error():
    with pytest.raises(duat.DuatError, match="one array"):
        duat.unroll(lambda x: x[0] + x[1], (jnp.ones(2), jnp.ones(2)))


def test_a_residual_term_needs_its_streams():
    form = duat.unroll(lambda x: x + duat.term(jnp.tanh, x, "tanh"), make_input())
    with pytest.raises(duat.DuatError, match="0 streams and 1 terms"):
        form.residual_term(1)


def two_terms_per_step(x, reverse):
    kernels = jax.random.normal(jax.random.key(8), (3, 6, 6)) / 3

    def step(x, w):
        x = duat.stream(x, "before")
        x = x + duat.term(jax.nn.gelu, x @ w, "a")
        x = duat.stream(x, "between")
        return x + duat.term(jax.nn.gelu, x @ w.T + 1.0, "b"), None

    return duat.stream(jax.lax.scan(step, x, kernels, reverse=reverse)[0], "after")


@pytest.mark.parametrize("reverse", [False, True])
def test_terms_and_streams_of_a_scan_come_in_the_order_of_execution(reverse):
    def fn(x):
        return two_terms_per_step(x, reverse)

    x = make_input()
    form = duat.unroll(fn, x)
    order = [(site.key, index[0]) for site, index in form.terms]
    steps = [2, 1, 0] if reverse else [0, 1, 2]
    assert order == [(name, step) for step in steps for name in ("a", "b")]
    close(form.evaluate(), fn(x), layers=6)
    for i in range(1, len(form.streams)):
        term = form.residual_term(i)
        before = form.dynamics.streams[form.streams[i - 1][0].key][form.streams[i - 1][1]]
        after = form.dynamics.streams[form.streams[i][0].key][form.streams[i][1]]
        activated = jax.nn.gelu(term.inner(before) + term.inner_bias)
        close(term.path(before) + term.path_bias + term.outer(activated), after)


def test_streams_with_two_terms_between_have_no_residual_term():
    def fn(x):
        x = duat.stream(x, "s")
        x = x + duat.term(jnp.tanh, x, "t")
        x = x + duat.term(jnp.tanh, x, "t")
        return duat.stream(duat.stream(x, "s"), "s")

    form = duat.unroll(fn, make_input())
    for i in (0, 1, 2, 3):
        with pytest.raises(duat.DuatError, match="no residual term"):
            form.residual_term(i)


def test_a_form_without_terms():
    form = duat.unroll(lambda x: 2 * x, make_input())
    assert form.term_shares().shape == (0, 4, 6)
    close(form.evaluate(), 2 * make_input())


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_the_form_of_a_model_evaluates_to_what_the_model_returns(name):
    model = duat.load(GOLDEN / name, dtype=jnp.float64)
    ids = jnp.array([5, 17, 3, 44])
    form = duat.unroll(model, ids)
    close(form.evaluate(), model(ids))
    close(form.value, model(ids))
