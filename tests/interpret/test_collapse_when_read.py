"""The collapse of an explanation is computed when it is read, and is that of the model as it was explained."""

import copy
import gc
import pickle
import weakref
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from helpers import close

import duat_jax as duat
from duat_jax.inputs.question import ask
from duat_jax.interpret.explain import compute as run

IDS = jnp.array([5, 17, 3, 44, 17, 20])
NAMES = "collapse", "collapse_bias", "collapse_completeness"


@pytest.fixture
def wanted(monkeypatch):
    """What every program that runs splits a number over, in order."""
    split, programs = run._split, []

    def spied(*asked):
        programs.append(asked[-1])
        return split(*asked)

    monkeypatch.setattr(run, "_split", spied)
    return programs


def model_of(name="gpt2"):
    return duat.load(GOLDEN / name, dtype=jnp.float64)


def collapsed(model, ids, output, gate_rule=None):
    """Return the parts of one output's logit at the last token by the matrix of `duat.collapse`, and the constant."""
    x = model.embed(jnp.asarray(ids))
    form = duat.collapse(lambda x: model.output(x)[-1, output], x, gate_rule=gate_rule)
    return (form.linear.dense().reshape(x.shape) * x).sum(-1), form.bias


def assert_collapse(explanation, expected):
    tokens, bias = expected
    close(explanation.collapse, tokens)
    close(explanation.collapse_bias, bias)
    assert explanation.collapse_completeness.verdict == "holds"
    assert explanation.collapse_completeness.value == explanation.value


QUIET = {
    "its numbers": lambda explanation: (explanation.value, explanation.term_tokens, explanation.top(3)),
    "its name": repr,
    "a list": lambda explanation: str(duat.explain(model_of(), [IDS, IDS[:3]])),
    "a name that it lacks": lambda explanation: hasattr(explanation, "collapses"),
}


@pytest.mark.parametrize("look", QUIET)
def test_what_does_not_show_the_collapse_does_not_compute_it(look, wanted):
    QUIET[look](duat.explain(model_of(), IDS, 7))
    assert wanted and set(wanted) == {(run.TABLE,)}


READ = {
    "a field": lambda explanation, folder: explanation.collapse_bias,
    "a table": lambda explanation, folder: str(explanation),
    "a picture": lambda explanation, folder: explanation.plot(),
    "a page": lambda explanation, folder: explanation.to_html(),
    "a record": lambda explanation, folder: explanation.as_dict(),
    "arrays": lambda explanation, folder: explanation.to_dataframe(),
    "a file": lambda explanation, folder: explanation.save(folder / "explanation"),
    "a copy": lambda explanation, folder: copy.copy(explanation),
    "a pickle": lambda explanation, folder: pickle.dumps(explanation),
}


@pytest.mark.parametrize("read", READ)
def test_what_shows_the_collapse_computes_it_once(read, wanted, tmp_path):
    explanation = duat.explain(model_of(), IDS, 7)
    assert not {*NAMES} & {*vars(explanation)}
    for _ in range(2):
        READ[read](explanation, tmp_path)
        assert wanted == [(run.TABLE,), (run.COLLAPSE,)]
    assert explanation.collapse_completeness.verdict == "holds"
    assert {*NAMES} <= {*vars(explanation)} <= {"terms", *(field.name for field in fields(explanation))}


@pytest.mark.parametrize("gate_rule", [None, "gate"])
def test_it_is_the_collapse_of_the_model(gate_rule, wanted):
    """By a rule for the collapse it is computed beside the table; either way it is `duat.collapse`'s, made dense."""
    model = model_of("llama")
    explanation = duat.explain(model, IDS, 7, gate_rule=gate_rule)
    assert (NAMES[0] in vars(explanation)) == (gate_rule is not None)
    assert_collapse(explanation, collapsed(model, IDS, 7, gate_rule))
    beside_the_table = run.answer(model, ask(model, IDS, 7), gate_rule, collapse=True)
    assert NAMES[0] in vars(beside_the_table)
    assert_collapse(beside_the_table, collapsed(model, IDS, 7, gate_rule))


def test_a_batch_has_one_program_and_each_text_and_target_its_own(wanted):
    model = model_of()
    texts, targets = [[5, 17, 3], [9], [8, 7, 6, 5]], [7, 3]
    found = duat.explain(model, texts, targets)
    for text, row in zip(texts, found):
        for target, explanation in zip(targets, row):
            assert_collapse(explanation, collapsed(model, text, target))
    assert wanted == [(run.TABLE,), (run.COLLAPSE,)]


def test_weights_that_change_in_place_are_not_those_that_were_explained():
    model = model_of()
    expected = collapsed(model, IDS, 7)
    explanation = duat.explain(model, IDS, 7)
    model.stack.blocks[1].mlp.output.kernel[...] *= 3
    assert np.abs(collapsed(model, IDS, 7)[0] - expected[0]).max() > 0.01
    assert_collapse(explanation, expected)


def test_a_forward_pass_in_double_precision_stays_in_it():
    with jax.enable_x64(True):
        model = model_of()
        expected, explanation = collapsed(model, IDS, 7), duat.explain(model, IDS, 7)
    with jax.enable_x64(False):
        found = explanation.collapse
    assert found.dtype == np.float64
    close(found, expected[0])


WAYS = {
    "a copy": copy.copy,
    "a deep copy": copy.deepcopy,
    "a pickle": lambda explanation: pickle.loads(pickle.dumps(explanation)),
    "a replacement": lambda explanation: replace(explanation, family="mine"),
    "a field": lambda explanation: (explanation.collapse, explanation)[1],
}


@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_are_read_need_no_model(way):
    model = model_of()
    expected, alive = collapsed(model, IDS, 7), weakref.ref(model)
    explanation = duat.explain(model, IDS, 7)
    del model
    gc.collect()
    assert alive() is not None, "until then the model is needed"
    explanation = WAYS[way](explanation)
    gc.collect()
    assert alive() is None
    assert_collapse(explanation, expected)
    assert not [each for each in jax.tree.leaves(vars(explanation)) if isinstance(each, jax.Array)]


def test_many_explanations_hold_a_model_once():
    """What an explanation holds before its collapse is read is small beside its table."""
    model = model_of()
    duat.explain(model, IDS, 7)
    before = len(jax.live_arrays())
    kept = [duat.explain(model, IDS, 7) for _ in range(20)]
    gc.collect()
    assert len(jax.live_arrays()) == before
    assert len(kept) == 20
