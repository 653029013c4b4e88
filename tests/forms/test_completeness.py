"""Completeness: three answers, each part by its own dtype, NaN fails, and every form carries it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ENCODER
from helpers import close, make_input, make_stack, relative, weights_of

import duat_jax as duat
from duat_jax.display.tables import completeness_line
from duat_jax.forms.affine_form import collapsed_contributions
from duat_jax.forms.completeness import completeness_of, entrywise_completeness

W = weights_of((6, 6)) / 2
W32 = W.astype(jnp.float32)


def cast(w, x):
    return w.astype(x.dtype)


def stack_of(depth):
    def fn(x):
        for i in range(depth):
            x = duat.stream(x, "layer")
            x = x + duat.term(jnp.tanh, x @ cast(W, x), f"mlp{i}", outer=lambda a: a @ cast(W.T, a))
        return duat.stream(x, "layer")

    return fn


def test_fourteen_terms_in_bfloat16_say_nothing_or_hold_and_negated_they_never_hold():
    fn = stack_of(14)
    parts = duat.decompose(lambda x: fn(x).sum(), make_input(dtype=jnp.float32).astype(jnp.bfloat16))
    assert parts.completeness.verdict in ("inconclusive", "holds")
    negated = [-part for part in (parts.input, *parts.terms.values())]
    assert completeness_of(parts.completeness.value, negated).verdict != "holds"


def test_a_tolerance_of_the_size_of_the_parts_says_nothing():
    parts = [jnp.array([1.0, -1.0, 0.25], jnp.bfloat16)] * 64
    assert completeness_of(sum(p.sum() for p in parts), parts).verdict == "inconclusive"


def test_a_constant_of_low_precision_loosens_the_tolerance_by_its_own_part_alone():
    x = make_input(dtype=jnp.float32)
    small = jnp.full(6, 2.0**-10, jnp.bfloat16)

    def fn(x, bias):
        return (x @ W32 + duat.offset(bias, "b").astype(jnp.float32)).sum()

    tight = duat.decompose(lambda x: fn(x, small.astype(jnp.float32)), x).completeness
    loose = duat.decompose(lambda x: fn(x, small), x).completeness
    assert tight.verdict == loose.verdict == "holds"
    part = 4 * 6 * 2.0**-10
    assert float(loose.tolerance - tight.tolerance) <= 4 * np.log2(29) * 2.0**-7 * part
    # Even so the constant cannot be lost without a word.
    lost = completeness_of(loose.value, [duat.decompose(lambda x: fn(x, small), x).input])
    assert lost.verdict == "fails"


@pytest.mark.parametrize("wrong", [jnp.nan, jnp.inf])
def test_what_isnt_a_number_fails(wrong):
    x = make_input().at[0, 0].set(wrong)
    assert duat.decompose(lambda x: x.sum(), x).completeness.verdict == "fails"
    assert duat.unroll(lambda x: 2 * x, x).completeness().verdict == "fails"
    assert duat.collapse(lambda x: 2 * x, x).completeness.verdict == "fails"
    assert completeness_of(jnp.array(1.0), [jnp.array([1.0, wrong])]).verdict == "fails"
    assert completeness_of(jnp.array(wrong), [jnp.array([1.0])]).verdict == "fails"


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_isnt_finite_fails_against_another_value_too(wrong):
    """A part without a place in the sum, such as a neuron's, is compared with the plain forward pass as well."""
    completeness = completeness_of(jnp.array(3.0), [jnp.array([1.0, 2.0])], finite=[jnp.array([wrong])])
    assert completeness.verdict == "fails"
    assert completeness.against(jnp.array(3.0)).verdict == "fails"
    assert jax.device_get(completeness).against(np.float64(3.0)).verdict == "fails"
    finite = completeness_of(jnp.array(3.0), [jnp.array([1.0, 2.0])])
    assert finite.against(np.float64(3.0)).verdict == "holds" and finite.against(np.float64(2.9)).verdict == "fails"


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0])
def test_the_tolerance_neither_vanishes_nor_overflows(dtype, size):
    """In its own range of sizes a dtype's relative tolerance is the same."""
    size = size if dtype == jnp.float16 else {1e-4: 1e-30, 1e-2: 1e30}.get(size, size)
    parts = [jnp.full(9, size, dtype)]
    one = completeness_of(jnp.array(9.0, dtype), [jnp.ones(9, dtype)])
    completeness = completeness_of(jnp.array(9 * size, dtype), parts)
    assert completeness.verdict != "fails"
    relative(np.float64(completeness.tolerance) / np.float64(parts[0][0]), np.float64(one.tolerance), within=0.01)


def test_zeros_that_sum_to_zero_hold_and_it_is_said_that_they_test_nothing():
    zeros = completeness_of(jnp.array(0.0), [jnp.zeros(3)])
    assert zeros.verdict == "holds" and "Every part is zero" in str(completeness_line(zeros))
    assert "Every part is zero" in zeros.as_dict()["note"]
    for parts in ([jnp.array([1.0, -1.0])], [jnp.array([1e-30])]):
        assert completeness_of(sum(part.sum() for part in parts), parts).note is None
    assert completeness_of(jnp.array(1.0), [jnp.zeros(3)]).verdict == "fails"


def test_parts_that_cancel_to_less_than_their_rounding_say_so():
    """The scale of small numbers, as a norm has it that neither overflows nor vanishes, moves by its whole range."""

    def norm(x):
        small = abs(x).max() <= 2.0**-12
        scaled = jnp.where(small, x * 2.0**75, x)
        return jnp.sqrt((scaled * scaled).sum()) * jnp.where(small, 2.0**-75, 1)

    def completeness(x, y):
        return duat.secant(norm)(*(jnp.array(each, jnp.float32) for each in (x, y))).completeness

    lost = completeness([3, 4], [0, 0])
    assert abs(lost.error) > 1 and "value is smaller than what rounding does" in lost.as_dict()["note"]
    assert completeness([3, 4], [1, 1]).note is None


def test_many_parts_are_reduced_as_few_are():
    def reductions(count):
        program = jax.jit(lambda parts: completeness_of(parts[0][0], parts))
        return program.lower([jnp.ones(3)] * count).compile().as_text().count(" reduce(")

    assert reductions(20) == reductions(40)


def test_without_parts_zero_holds_and_anything_else_fails():
    assert completeness_of(jnp.array(0.0), []).verdict == "holds"
    assert completeness_of(jnp.array(1e-30), []).verdict == "fails"


def test_under_vmap_it_is_an_array_and_one_failure_fails():
    xs = jnp.stack([make_input(key=k) for k in range(3)])
    completeness = jax.vmap(lambda x: duat.decompose(lambda x: stack_of(2)(x).sum(), x).completeness)(xs)
    assert completeness.within.shape == completeness.tolerance.shape == (3,)
    assert completeness.verdict == "holds"
    broken = completeness._replace(error=completeness.error.at[1].set(1.0))
    assert broken.holds.tolist() == [True, False, True]
    assert broken.verdict == "fails"


def test_only_what_is_live_counts():
    def alive(x):
        return (x @ W).sum()

    def with_the_dead(x):
        y = x
        for i in range(20):
            y = y + duat.term(jnp.tanh, y @ W, f"dead{i}")
        return (x @ W).sum()

    x = make_input()
    assert duat.decompose(with_the_dead, x).completeness == duat.decompose(alive, x).completeness


@pytest.mark.parametrize("block", ["pre-norm", pytest.param("post-norm", marks=pytest.mark.slow)])
def test_every_form_carries_it_and_it_holds(block):
    stack, x = make_stack(block, 3), make_input()
    form = duat.unroll(stack, x)
    assert duat.collapse(stack, x).completeness.verdict == "holds"
    assert form.completeness().verdict == "holds"
    for i in range(len(form.streams)):
        assert form.completeness(i).verdict == "holds"
        close(form.completeness(i).value, form.recording.at(form.streams[i]))
    for i in range(1, len(form.streams)):
        assert form.layer_completeness(i).verdict == "holds"


def test_a_part_that_is_wrong_anywhere_fails_entry_by_entry():
    value = make_input()
    good = [0.3 * value, 0.7 * value]
    assert entrywise_completeness(value, good).verdict == "holds"
    for wrong in ([good[0]], [good[0], -good[1]], [good[0], good[1].at[2, 3].multiply(1.0001)]):
        assert entrywise_completeness(value, wrong).verdict == "fails"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("depth", [1, 6, 24])
def test_the_tolerance_is_near_the_error_over_many_inputs(depth, dtype):
    """Rounding is random: over many inputs the largest error is no small fraction of the tolerance, nor beyond it."""
    fn = stack_of(depth)
    xs = jax.random.normal(jax.random.key(7), (64, 4, 6), dtype)
    run = jax.jit(jax.vmap(lambda x: duat.decompose(lambda x: fn(x)[-1].sum(), x).completeness))
    completeness = run(xs)
    assert completeness.verdict == "holds"
    ratio = jnp.median(completeness.tolerance) / jnp.abs(completeness.error).max()
    assert 1 < ratio < 30


@pytest.mark.slow
@pytest.mark.parametrize("path", [None, ENCODER], ids=["embedded", "all-MiniLM-L6-v2"])
def test_on_a_real_model_the_tolerance_is_within_thirty_times_the_error_seen(path):
    model = duat.load() if path is None else duat.load(path)
    ids = jax.random.randint(jax.random.key(1), (64, 16), 1000, 4000)
    readout = jax.random.normal(jax.random.key(2), jax.eval_shape(model, ids[0]).shape[1:], jnp.float32)

    @jax.jit
    def run(model, ids):
        def scalar(x):
            return jnp.vdot(readout, model.output(x)[-1], precision="highest")

        return duat.decompose(scalar, model.embed(ids)).completeness

    each = [run(model, one) for one in ids]
    assert {completeness.verdict for completeness in each} == {"holds"}
    error, tolerance = (np.array([getattr(c, name) for c in each]) for name in ("error", "tolerance"))
    assert 1 < tolerance.max() / np.abs(error).max() < 30


def with_marks(x, kept, weight=1.0, bias=0.0):
    """One layer, in which everything that is marked may be wrong where the value doesn't show it."""
    x = duat.stream(jnp.where(kept, x, 0), "layer")
    gate = duat.hold(jnp.where(kept, jnp.tanh(x), weight), "gate")
    z = x @ W + duat.offset(jnp.where(kept, 1.0, bias), "bias")
    term = duat.term(jnp.tanh, z, "mlp", outer=lambda a: a @ W.T)
    return duat.stream(x + jnp.where(kept, gate * jnp.where(kept, term, 0), 0), "layer")


def of_a_stream(form, i):
    return form.completeness(i), [form.input_map(i)(form.x0), form.bias(i), form.term_contributions(i)]


def of_a_layer(form):
    layer, x = form.residual_term(1), form.recording.at(form.streams[0])
    outputs = [term.outer(form.activate(1, term.inner(x) + term.inner_bias)) for term in layer.terms]
    return form.layer_completeness(1), [layer.path(x), layer.path_bias, outputs]


def summed(fn):
    return lambda x: fn(x).sum()


def with_completeness(result):
    return result.completeness, result


def split(fn, x, y, **options):
    found = duat.secant(summed(fn), **options)(x, y)
    return found.completeness, found._replace(changes=(), middles=())  # of values on the way, which need no part


FORMS = {
    "decompose": lambda fn, x: with_completeness(duat.decompose(summed(fn), x)),
    "contributions": lambda fn, x: with_completeness(duat.contributions(duat.record(summed(fn))(x))),
    "unroll": lambda fn, x: of_a_stream(duat.unroll(fn, x), None),
    "unroll, a stream": lambda fn, x: of_a_stream(duat.unroll(fn, x), 1),
    "unroll, a layer": lambda fn, x: of_a_layer(duat.unroll(fn, x)),
    "collapse": lambda fn, x: (found := duat.collapse(fn, x)) and (found.completeness, [found.linear(x), found.bias]),
    "collapse, of a read-out": lambda fn, x: with_completeness(collapsed_contributions(duat.record(summed(fn))(x))),
    "secant": lambda fn, x: split(fn, x, x / 2, at="stream", held=True),
    "secant, exchanged": lambda fn, x: split(fn, x / 2, x, at=("activation", "hold")),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_holds_with_a_nan_in_any_of_its_numbers(form):
    """In a masked entry of the argument, of what is held and of a bias, and everywhere."""
    x, kept = make_input(), jnp.ones((4, 6), bool).at[1, 2].set(False)
    assert FORMS[form](lambda x: with_marks(x, kept), x)[0].verdict == "holds"
    nowhere = 0
    for wrong in (jnp.nan, jnp.inf):
        for fn, at in (
            (lambda x: with_marks(x, kept), x.at[1, 2].set(wrong)),
            (partial(with_marks, kept=kept, weight=wrong), x),
            (partial(with_marks, kept=kept, bias=wrong), x),
            (lambda x: with_marks(x, kept), x.at[0, 0].set(wrong)),
        ):
            completeness, numbers = FORMS[form](fn, at)
            finite = all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(numbers))
            assert completeness.verdict != "holds" or finite
            nowhere += finite
    assert nowhere < 8
