"""Wrong parts are noticed: by completeness if they change the sum, and by an independent reference if they don't."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, FUNCTIONS, REAL, STACKS
from functions import MASKS
from held_gradient import held_parts
from helpers import make_input
from lies import (
    DTYPES,
    anew,
    answers,
    collapsed_answers,
    decomposed,
    disagreement,
    flat,
    forgotten,
    how,
    judge,
    marked,
    precision,
    tolerances,
    with_remainder,
)

import duat_jax as duat
from duat_jax.forms import decomposition
from duat_jax.forms.completeness import HOLDS
from duat_jax.nn import ACTIVATIONS
from duat_jax.transform import marks

QUESTIONS = {
    "neurons": answers,
    "tokens": lambda case: answers(case, neurons=False),
    "collapse": collapsed_answers,
}

ONE_OF_EACH = [list(STACKS)[i] for i in (0, 5, 10, 15, 16, 21)]
"""Every block, every mask and every activation but one."""
quick = [(name, DTYPES[i % 2]) for i, name in enumerate(ONE_OF_EACH[::2])]
quick += [("bert", "float64"), ("scalar", "float32")]
asked = {name for name, _ in quick}
rest = [(name, DTYPES[i % 2]) for i, name in enumerate(STACKS) if name not in asked]
rest += [(name, dtype) for name in CASES if name not in STACKS for dtype in DTYPES if (name, dtype) not in quick]
every = [*quick, *(pytest.param(*case, marks=pytest.mark.slow) for case in rest)]


@pytest.mark.parametrize(("name", "dtype"), every)
def test_the_truth_is_the_reference_and_no_lie_is(name, dtype):
    with precision(dtype):
        case = CASES[name](dtype)
        for question, answer in QUESTIONS.items():
            with how(name):
                found = answer(case)
            beyond = {label: off for label, off in disagreement(found.parts, found.reference).items() if off > 1}
            assert not beyond, question
            assert found.completeness.verdict == HOLDS
            if not case.constants and "unmarked" in found.parts:
                assert found.parts["unmarked"] == 0
            judged = list(judge(case, found.parts, found.reference, found.completeness.value))
            assert judged
            assert not [j for j in judged if j.owed_by_sum and not j.by_sum], question
            assert not [j for j in judged if j.owed_by_reference and not j.by_reference], question
            # What keeps the sum is for the reference alone to notice.
            assert not [j for j in judged if j.by_sum and ("swapped" in j.lie or "moved" in j.lie)]


FORGETFUL = [*ONE_OF_EACH, "gpt2", "bert", "several", "tree", "nested", "awkward", "linear and held", "only held"]


def one_at_a_time(name, case, kind):
    """Return each mark of a kind by name and place; in a scan all of one name, as its body may be traced twice."""
    names = marked(case, kind)
    if name in FUNCTIONS:
        return [(a, None) for a in dict.fromkeys(names)]
    return [(a, names[:i].count(a)) for i, a in enumerate(names) if i < len(names) / 2 or a not in names[:i]]


@pytest.mark.parametrize("name", FORGETFUL)
def test_a_forgotten_hold_is_refused_or_flows_as_in_the_reference_without_it(name):
    """Some needn't be held: of what comes before another hold or in a pre-activation alone, every part is the same."""
    case = CASES[name]("float64")
    whole = with_remainder(held_parts(case.fn, case.x, neurons=False))
    noticed = []
    for hold in one_at_a_time(name, case, marks.HOLD):
        try:
            with how(name), forgotten(marks.HOLD, *hold):
                parts, _ = decomposed(anew(case), neurons=False)
        except duat.NotAffine:
            noticed.append(hold)
            continue
        without = with_remainder(held_parts(case.fn, case.x, neurons=False, forgotten=hold))
        assert max(disagreement(parts, without).values()) <= 1, hold
        if max(disagreement(parts, whole).values()) > 1e6:
            noticed.append(hold)
        else:
            assert max(disagreement(parts, whole).values()) <= 1, hold
    assert noticed


SLOW_TO_FORGET = [pytest.param(name, marks=pytest.mark.slow) for name in [*ONE_OF_EACH[:3], *ONE_OF_EACH[4:], "bert"]]


@pytest.mark.parametrize("name", [ONE_OF_EACH[3], "several", "nested", "awkward", *SLOW_TO_FORGET])
def test_a_forgotten_bias_turns_up_without_a_mark(name):
    case = CASES[name]("float64")
    reference = held_parts(case.fn, case.x, neurons=False)
    for offset, occurrence in one_at_a_time(name, case, marks.OFFSET):
        with how(name), forgotten(marks.OFFSET, offset, occurrence):
            parts, completeness = decomposed(anew(case), neurons=False)
        (label,) = gone = reference.parts.keys() - parts.keys()
        assert label.endswith(offset)
        left = {key: part for key, part in reference.parts.items() if key not in gone}
        expected = with_remainder(reference._replace(parts=left))
        allowed = tolerances(expected)
        for key, part in expected.parts.items():
            assert (np.abs(parts[key] - part) <= allowed[key]).all(), (label, key)
        if np.abs(reference.parts[label]).max() > completeness.tolerance:
            assert abs(parts["unmarked"]) > 0
        assert completeness.verdict == HOLDS


def test_each_of_a_batch_has_the_parts_of_the_reference():
    case = CASES["pre-norm, causal, relu"]("float64")
    xs = jnp.stack([make_input(key=k) for k in range(3)])
    parts = jax.vmap(lambda x: duat.decompose(case.fn, x))(xs)
    for i, x in enumerate(xs):
        reference = held_parts(case.fn, x)
        allowed = tolerances(reference)
        for key, part in parts.terms.items():
            assert (np.abs(part[i] - reference.parts[f"term {key}"]) <= allowed[f"term {key}"]).all()
        assert (np.abs(parts.input[i] - reference.parts["input[0]"]) <= allowed["input[0]"]).all()


@pytest.mark.parametrize("neurons", [pytest.param(True, marks=pytest.mark.slow), False])
def test_parts_in_single_precision_have_a_value_of_single_precision(neurons):
    """Where double precision is on, too."""
    case = CASES["pre-norm, causal, relu"]("float32")
    with jax.disable_jit():
        parts, completeness = decomposed(case, neurons=neurons)
    assert {part.dtype for part in parts.values()} == {np.dtype("float32")} == {completeness.value.dtype}


def _negated(on_input, on_marks):
    site = next(s for s in on_marks if s.kind == marks.ACTIVATION)
    return on_input, on_marks | {site: -on_marks[site]}


def _skipped(on_input, on_marks):
    site = next(s for s in on_marks if s.kind == marks.OFFSET and np.abs(on_marks[s]).max() > 0)
    return on_input, on_marks | {site: jnp.zeros_like(on_marks[site])}


def _dropped(on_input, on_marks):
    return [on_input[0].at[1].set(0)], on_marks


def _exchanged(on_input, on_marks):
    a, b = [s for s in on_marks if s.kind == marks.ACTIVATION][:2]
    return on_input, on_marks | {a: on_marks[b], b: on_marks[a]}


@pytest.mark.parametrize("broken", [_negated, _skipped, _dropped, _exchanged])
def test_a_library_that_is_broken_is_noticed(broken, monkeypatch):
    case = CASES["pre-norm, causal, relu"]("float64")
    pull_back = decomposition.pull_back
    monkeypatch.setattr(decomposition, "pull_back", lambda *args: broken(*pull_back(*args)))
    with jax.disable_jit():
        found = answers(case)
    assert max(disagreement(found.parts, found.reference).values()) > 1e6
    assert found.completeness.verdict != HOLDS


@pytest.mark.slow
def test_lies_are_told_about_everything():
    """Every block, mask and activation, every family and both of the models that people use, in both dtypes."""
    assert {tuple(name.split(", "))[k] for name in STACKS for k in (1, 2)} == {*MASKS, *ACTIVATIONS}
    assert {name for name, _ in (*quick, *rest)} == set(CASES) and set(REAL) < set(CASES)
    with how("gpt2"):
        case = CASES["gpt2"]("float32")
        found = answers(case)
    kinds = {j.lie for j in judge(case, found.parts, found.reference, found.completeness.value)}
    assert len(kinds) == 6 and flat(found.parts).dtype == np.float32
