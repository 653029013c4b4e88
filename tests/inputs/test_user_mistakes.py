"""Every question answers a mistake of the user with one sentence."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from helpers import close

import duat_jax as duat
from duat_jax.forms.affine_form import collapsed_contributions


def layer(x):
    gate = duat.hold(jnp.tanh(x).max(), "gate")
    hidden = duat.term(jnp.tanh, 2 * x, "mlp") * gate + duat.offset(jnp.ones_like(x), "bias")
    return duat.stream(x + hidden, "layer").sum()


def recorded():
    return duat.record(layer)(BATCH[0])


BATCH = jnp.arange(6.0).reshape(2, 3)
QUESTIONS = {
    "contributions": lambda recording: duat.contributions(recording, jnp.ones(2)),
    "collapse": lambda recording: collapsed_contributions(recording, jnp.ones(2)),
    "linear_map": lambda recording: duat.linear_map(recording)(jnp.ones((2, 3))),
    "linear_map, of a mark": lambda recording: duat.linear_map(recording, source=recording.streams[0])(jnp.ones(3)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_recording_of_many_inputs_is_asked_under_vmap(question):
    recording = jax.vmap(duat.record(layer))(BATCH)
    with pytest.raises(duat.DuatError, match=r"\(2, 3\), in the program it is \(3,\).*under jax.vmap"):
        QUESTIONS[question](recording)


def test_under_vmap_it_is_answered():
    recording = jax.vmap(duat.record(layer))(BATCH)
    parts = jax.vmap(duat.contributions)(recording)
    close(parts.input[1], duat.decompose(layer, BATCH[1]).input)


@pytest.mark.parametrize(
    ("dynamics", "fn", "x", "message"),
    [
        (
            lambda: duat.record(layer)(BATCH[0]).dynamics,
            layer,
            jnp.ones(4),
            r"mlp is \(3,\).*it is \(4,\).*record the function again",
        ),
        (lambda: jax.vmap(duat.record(layer))(BATCH).dynamics, layer, jnp.ones(3), "under jax.vmap"),
        (
            lambda: duat.record(layer)(BATCH[0]).dynamics,
            lambda x: duat.hold(x, "other").sum(),
            jnp.ones(3),
            "hold other",
        ),
        (recorded, layer, jnp.ones(3), r"record\(fn\)\(x\).dynamics"),
    ],
    ids=["another length", "many inputs", "another function", "a recording"],
)
def test_dynamics_of_something_else_are_not_replayed(dynamics, fn, x, message):
    with pytest.raises(duat.DuatError, match=message):
        duat.replay(fn, dynamics())(x)


FLOATS = (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64)


@pytest.mark.parametrize("recorded", FLOATS)
def test_dynamics_are_replayed_at_their_own_dtype_alone(recorded):
    dynamics = duat.record(layer)(jnp.ones(3, recorded)).dynamics
    for dtype in FLOATS:
        if dtype == recorded:
            assert bool(duat.replay(layer, dynamics)(jnp.ones(3, dtype)) == layer(jnp.ones(3, dtype)))
        else:
            with pytest.raises(duat.DuatError, match=f"is {recorded.dtype} and not {dtype.dtype}.*that was recorded"):
                duat.replay(layer, dynamics)(jnp.ones(3, dtype))


@pytest.mark.parametrize("step", ["mlp", 0, None, duat.Key((), "mlp", 0)])
def test_a_recording_has_values_at_its_own_marks_alone(step):
    with pytest.raises(duat.DuatError, match=r"is no occurrence of a mark.*such as streams\[0\]"):
        duat.record(layer)(jnp.ones(3)).at(step)


def test_python_numbers_are_arrays():
    assert duat.unroll(lambda x: 3 * x, 2.0).completeness().verdict == "holds"
    assert duat.collapse(lambda x: 3 * x, 2.0).completeness.verdict == "holds"
    assert float(duat.linear_map(duat.record(lambda x: 3 * x)(2.0))(jnp.array(5.0))) == 15
    assert float(duat.replay(lambda x: 3 * x, duat.record(lambda x: 3 * x)(2.0).dynamics)(4.0)) == 12
    for pair in (((2.0, 3), (1, 4.0)), ((2, 3.0), (1.0, 4)), ((2.0, 3.0), (1, 4))):
        found = duat.secant(lambda x: x[0] * x[1])(*pair)
        assert [float(part) for part in found.parts] == [3.5, -1.5]
        assert found.completeness.verdict == "holds"


MODULES = {
    "nnx.RNN": lambda: nnx.RNN(nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0))),
    "nnx.BatchNorm": lambda: nnx.BatchNorm(3, rngs=nnx.Rngs(0)),
    "nnx.Dropout": lambda: nnx.Dropout(0.5, rngs=nnx.Rngs(0)),
}
FORMS = {
    "record": lambda fn, x: duat.record(fn)(x),
    "decompose": duat.decompose,
    "unroll": duat.unroll,
    "collapse": duat.collapse,
    "replay": lambda fn, x: duat.replay(fn, duat.record(jnp.sum)(x).dynamics)(x),
    "edit": lambda fn, x: duat.edit(fn, {})(x),
    "secant": lambda fn, x: duat.secant(fn)(x, x / 2),
}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_that_changes_while_it_runs_is_refused_in_one_sentence(module):
    x = jnp.arange(15, dtype=jnp.float32).reshape(1, 5, 3)
    for form in FORMS.values():
        made = MODULES[module]()
        with pytest.raises(duat.UnsupportedProgram, match=r"nnx.clone\(module\)\(x\)") as raised:
            form(lambda x, made=made: made(x).sum(), x)
        assert "\n" not in str(raised.value)
    made = MODULES[module]()
    assert duat.secant(lambda x: jnp.square(nnx.clone(made)(x)).sum())(x, x / 2 + 1).completeness.within


@pytest.mark.parametrize("transform", [nnx.jit, nnx.remat])
def test_a_transform_of_flax_needs_a_clone_in_evaluation_mode_too(transform):
    made, x = nnx.Dropout(0.5, rngs=nnx.Rngs(0)), jnp.ones(3)
    made.eval()
    with pytest.raises(duat.UnsupportedProgram, match=r"in evaluation mode too: call them with nnx.clone\(module\)"):
        duat.record(lambda x: transform(lambda module, x: module(x))(made, x).sum())(x)
    assert duat.record(lambda x: transform(lambda module, x: module(x))(nnx.clone(made), x).sum())(x).value == 3


def test_a_verdict_is_read_outside_of_a_traced_function():
    x, y = jnp.ones(3), jnp.zeros(3)
    completeness = jax.jit(lambda x: duat.secant(lambda x: jnp.square(x).sum())(x, y).completeness)
    assert completeness(x).verdict == "holds"
    with pytest.raises(duat.DuatError, match="return the completeness from jax.jit"):
        jax.jit(lambda x: len(completeness(x).verdict))(x)


def test_weights_of_a_module_are_its_parameters():
    module = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    module.weight = nnx.Param(jnp.ones(2))
    with pytest.raises(duat.DuatError, match=r"rngs.key aren't arrays of floats: .*nnx.state\(module, nnx.Param\)"):
        duat.training.begin(lambda weights: 1.0, module)
    assert duat.training.begin(lambda weights: 1.0, nnx.state(module, nnx.Param)).difference == 0


OF_A_LOADED_MODEL = """
import jax.numpy as jnp
from flax import nnx
import duat_jax as duat

class Mine(nnx.Module):
    pass

task = duat.in_context.Task(jnp.array([1, 2]), jnp.array([True, False]), jnp.array([1]), jnp.array([2]))
for ask in (
    lambda model: duat.explain(model, [1, 2]),
    lambda model: duat.contrast(model, [1, 2], [3, 4]),
    lambda model: duat.attribute(model, [1, 2]),
    lambda model: duat.intervene(model, [1, 2], duat.edits.Heads(0, 0).set(0)),
    lambda model: duat.explain_attention(model, [1, 2], layer=0, head=0, key=0),
    lambda model: duat.lora.lora_change(model, {}, [1, 2]),
    lambda model: duat.in_context.ledger(model, task),
    lambda model: duat.pruning.prune(model, jnp.ones((2, 4), int), 0.5),
    lambda model: duat.graph(model, [1, 2]),
):
    for model in (Mine(), jnp.sum):
        try:
            ask(model)
        except duat.DuatError as error:
            print(error)

for ask in (duat.linear_map, duat.contributions, lambda fn: duat.split_score(fn, None, None, None, None)):
    try:
        ask(jnp.sum)
    except duat.DuatError as error:
        print(error)

recording = duat.record(lambda x: duat.stream(2 * x, "layer").sum())(jnp.ones(3))
for ask in (duat.linear_map, duat.contributions):
    try:
        ask(recording, target="layer")
    except duat.DuatError as error:
        print(error)
"""


def test_a_module_of_ones_own_and_the_name_of_a_mark_are_told_what_is_taken():
    # In a process of its own: the tests' type checks would refuse it first.
    run = subprocess.run([sys.executable, "-c", OF_A_LOADED_MODEL], capture_output=True, text=True, check=True)
    said = run.stdout.splitlines()
    assert len(said) == 23
    for given in ("Mine", "function"):
        assert sum(f"the model is a {given}: give one that duat.load returns" in line for line in said[:18]) == 9
    assert all('explained by duat.decompose(fn, x, marks="auto")' in line for line in said[:18])
    assert all("the recording is a function: give that of a function at an input" in line for line in said[18:21])
    assert all("'layer' can't be the target of a linear map: choose one of" in line for line in said[21:])


def test_nothing_flows_from_whole_numbers():
    ids, table = jnp.array([1, 2]), jnp.ones((4, 3))
    for ask in (
        lambda: duat.secant(lambda ids: table[ids].sum())(ids, ids + 1),
        lambda: duat.decompose(lambda ids: table[ids].sum(), ids),
        lambda: duat.unroll(lambda ids: table[ids], ids),
        lambda: duat.collapse(lambda ids: table[ids], ids),
    ):
        with pytest.raises(duat.DuatError, match="whole numbers.*begin at the embeddings"):
            ask()


def test_a_layer_that_isnt_marked_says_how_to_mark_it():
    form = duat.unroll(lambda x: duat.term(jax.nn.relu, x, "mlp") + x, jnp.ones(3))
    with pytest.raises(duat.DuatError, match=r"mark each layer's result with stream\(x, name\)"):
        form.residual_term(1)


def test_a_full_name_is_found_before_the_end_of_another():
    values = duat.results.Marked({duat.Key(("layers.0",), "norm.scale", 0): 1, duat.Key((), "norm.scale", 0): 2})
    assert values["norm.scale"] == 2 and values["layers.0.norm.scale"] == 1


def test_results_of_functions_print_in_one_line():
    x = jnp.arange(6.0).reshape(2, 3)
    marked = lambda x: duat.term(jax.nn.relu, x, "mlp").sum()  # noqa: E731
    for result in (duat.decompose(marked, x), duat.secant(marked)(x, x + 1), duat.collapse(marked, x)):
        assert "\n" not in str(result) and "completeness: holds" in str(result) and len(str(result)) < 250
    shown = []
    jax.eval_shape(lambda x: shown.append(str(duat.decompose(marked, x))), x)
    assert "not known in a trace" in shown[0]
