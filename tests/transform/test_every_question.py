"""Every question is proved: each public method and function refuses to answer for a function that isn't affine."""

import dataclasses
import inspect
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, make_input, weights_of

import duat_jax as duat
from duat_jax import hold, offset, point, public, stream, term
from duat_jax.forms.affine_form import collapse_of, collapsed_contributions
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.pre_activation import NeuronsAtTokens, read_by, written_by
from duat_jax.forms.score import neurons_of
from duat_jax.forms.stream_flow import FlowMarks, flow
from duat_jax.operators.linear_map import LinearMap
from duat_jax.transform import marks
from duat_jax.transform.activations import activations_of
from duat_jax.transform.query import pre_activations_of

W, V = weights_of((6, 6)) / 3, weights_of((6, 6), key=3) / 3


def layered(inner, add, σ=jnp.tanh, outer=lambda a: a @ V):
    """Return one layer between two streams, with queries and keys that are read from its end."""

    def fn(x):
        x = stream(x, "layer")
        x = stream(add(x) + term(σ, inner(x), "mlp", outer=outer), "layer")
        point(x[:, None], "queries")
        return point(x[:, None], "keys")[:, 0]

    return fn


def affine(x):
    return x @ W


NOT_AFFINE = {
    "a nonlinear map": layered(lambda x: jnp.cosh(x) @ W, lambda x: 3 * jnp.cos(x)),
    "a square": layered(lambda x: x * x, lambda x: x * x),
    "an offset that flows": layered(lambda x: x @ W + offset(x.sum(0), "b"), affine),
    "an offset that flows elsewhere": layered(affine, lambda x: x + offset(x[:1] @ W, "b")),
    "an activation that mixes neurons": layered(affine, affine, σ=jax.nn.softmax),
    "an activation of something else": layered(affine, affine, σ=lambda z: jnp.tanh(z) * z.mean()),
    "an outer map that isn't linear": layered(affine, affine, outer=jnp.sin),
}
PROVED = layered(lambda x: hold(jax.nn.sigmoid(x), "gate") * (x @ W) + offset(W[0], "b"), affine)


def layers(in_loop):
    """Return three layers, in a loop or written out, and two points after them."""
    inner, outer = weights_of((3, 6, 6)) / 3, weights_of((3, 6, 6), key=3) / 3

    def layer(x, W, V):
        x = x + hold(jax.nn.sigmoid(x), "gate") * (x @ W) + offset(W[0], "b")
        return x + term(jax.nn.gelu, x @ W + offset(V[0], "mlp.b"), "mlp", outer=lambda a: a @ V)

    def step(x, weights):
        with jax.named_scope("layers.0:3"):
            x = layer(x, *weights)
        return stream(x, "layer"), None

    def fn(x):
        x = stream(x, "layer")
        if in_loop:
            x, _ = jax.lax.scan(step, x, (inner, outer))
        else:
            for i in range(3):
                with jax.named_scope(f"layers.{i}"):
                    x = layer(x, inner[i], outer[i])
                x = stream(x, "layer")
        point(x[:, None], "queries")
        return point(x[:, None], "keys")[:, 0]

    return fn


def entries(answer):
    """Return the names and numbers of an answer, maps as their matrices."""
    if isinstance(answer, LinearMap):
        return [answer.dense()]
    if isinstance(answer, dict | duat.results.Marked):
        return [entry for key, value in answer.items() for entry in (str(key), *entries(value))]
    if dataclasses.is_dataclass(answer):
        return entries({field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)})
    if isinstance(answer, list | tuple):
        return [entry for value in answer for entry in entries(value)]
    return [str(answer) if isinstance(answer, str) or answer is None else np.asarray(answer)]


ARGUMENTS = {"i": (None, 1), "j": (1,), "x": (jnp.ones((4, 6)),), "z": (jnp.ones((4, 6)),)}
"""What a method of the closed form is asked with, by the name of its parameter."""

NO_QUESTION = {"recording", "x0", "value", "dynamics", "streams", "terms"}
"""What a closed form says that is no answer: the forward pass as it was recorded."""


def methods():
    names = [name for name, _ in inspect.getmembers(duat.results.ClosedForm) if not name.startswith("_")]
    return sorted({*names} - NO_QUESTION)


def asked_of_the_form(name):
    """Return what asks a method with each of its arguments in turn."""
    parameters = [p for p in inspect.signature(getattr(duat.results.ClosedForm, name)).parameters if p != "self"]
    # A layer has a number of its own, the last one.
    choices = [(1,)] if "layer" in name or name == "residual_term" else [ARGUMENTS[p] for p in parameters]
    count = max(map(len, choices), default=1)
    chosen = [[values[k % len(values)] for values in choices] for k in range(count)]

    def ask(fn, x):
        form = duat.unroll(fn, x)
        return [lambda arguments=arguments: getattr(form, name)(*arguments) for arguments in chosen]

    return ask


def of_recording(*asks):
    def ask(fn, x):
        recording = duat.record(fn)(x)
        return [lambda one=one: one(recording) for one in asks]

    return ask


def last(recording):
    return recording.streams[-1]


def points(recording):
    return [step for step in recording.program.steps(marks.POINT) if step.site.key.name in ("queries", "keys")]


SIDE = duat.results.ScoreSide(0, jnp.eye(4)[1])
READOUT = jnp.ones((4, 6))


def neurons(recording):
    of_terms = tuple(jnp.array([k == 0] * 2) for k in range(len(recording.terms)))
    return NeuronsAtTokens(of_terms, jnp.array([1, 3]), jnp.array([2, 0]))


FUNCTIONS = {
    "decompose": lambda fn, x: [lambda: duat.decompose(lambda x: fn(x).sum(), x)],
    "contributions": of_recording(
        lambda r: duat.contributions(r, READOUT),
        lambda r: duat.contributions(r, READOUT, target=last(r)),
        lambda r: duat.contributions(r, READOUT, target=r.terms[0]),
        lambda r: duat.contributions(r, READOUT, by_neuron=False),
    ),
    "collapse": lambda fn, x: [lambda: duat.collapse(fn, x)],
    "collapse_of": of_recording(collapse_of),
    "collapsed_contributions": of_recording(
        lambda r: collapsed_contributions(r, READOUT), lambda r: collapsed_contributions(r, READOUT, target=last(r))
    ),
    "coefficients": of_recording(
        lambda r: coefficients(r, [last(r).site], READOUT),
        lambda r: coefficients(r, [last(r).site], READOUT, slopes=True),
    ),
    "linear_map": of_recording(
        duat.linear_map,
        lambda r: duat.linear_map(r, r.streams[0], last(r)),
        lambda r: duat.linear_map(r, None, r.terms[0]),
        lambda r: duat.linear_map(r, last(r), last(r)),
    ),
    "replay": lambda fn, x: [lambda: duat.replay(fn, duat.record(fn)(x).dynamics)(x)],
    "split_score": of_recording(lambda r: duat.split_score(r, *points(r), SIDE, SIDE)),
    "neurons_of": of_recording(
        lambda r: neurons_of(r, points(r)[0], SIDE, r.activations[0].site, 1),
    ),
    "flow": of_recording(lambda r: flow(r, READOUT, followed=FlowMarks(tuple((s.site,) for s in r.streams), ()))),
    "read_by": of_recording(lambda r: read_by(r, neurons(r))),
    "written_by": of_recording(lambda r: written_by(r, neurons(r))),
    "image_maps": lambda fn, x: [lambda: duat.image_maps(lambda x: fn(x[0]).sum(), x[None])],
    "pre_activations_of": of_recording(lambda r: pre_activations_of(r, r.arguments, {})),
}
"""What is asked of a function or of its recording besides the closed form's methods."""

CLAIM_NOTHING = {"auto", "record", "edit", "secant", "unroll"}
"""Public transformations that say nothing about affinity: `auto` places marks, `unroll` answers by methods."""

QUESTIONS = {f"ClosedForm.{name}": asked_of_the_form(name) for name in methods()} | FUNCTIONS


def test_every_public_function_of_a_function_or_a_recording_is_asked():
    found = {
        name
        for name, member in inspect.getmembers(public, inspect.isfunction)
        if {"fn", "recording"} & {*inspect.signature(member).parameters}
    }
    assert found == ({*FUNCTIONS} & {*dir(public)}) | CLAIM_NOTHING


@pytest.mark.parametrize("what", NOT_AFFINE)
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_is_answered_without_its_proof(question, what):
    with jax.disable_jit():
        for ask in QUESTIONS[question](NOT_AFFINE[what], make_input()):
            with pytest.raises(duat.NotAffine):
                ask()


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_is_answered_once_it_is_proved(question):
    with jax.disable_jit():
        for ask in QUESTIONS[question](PROVED, make_input()):
            ask()


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_answer_about_a_scan_over_layers_is_that_about_the_layers_written_out(question):
    x = make_input()
    written, scanned = ([ask() for ask in QUESTIONS[question](layers(way), x)] for way in (False, True))
    found, expected = entries(scanned), entries(written)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, str):
            assert one == other
        else:
            close(one, other)


def test_an_activation_that_isnt_elementwise_is_never_evaluated():
    recording = duat.record(NOT_AFFINE["an activation that mixes neurons"])(make_input())
    with pytest.raises(duat.NotAffine, match="isn't elementwise"):
        activations_of(recording, {})


def test_a_question_that_was_refused_is_refused_again():
    """A refusal leaves nothing compiled behind."""
    form = duat.unroll(NOT_AFFINE["a nonlinear map"], make_input())
    for _ in range(2):
        with pytest.raises(duat.NotAffine, match="cos isn't linear"):
            form.bias()


def test_what_isnt_on_the_way_needs_no_proof():
    """A step of a scan, or a term that nothing reads, is refused where it is read alone."""

    def fn(x):
        def step(x, _):
            x = stream(x, "layer")
            return x * x, None

        return jax.lax.scan(step, x, None, length=2)[0]

    form, x = duat.unroll(fn, make_input()), make_input()
    close(form.bias(0), jnp.zeros_like(x))
    close(form.input_map(0)(x), x)
    with pytest.raises(duat.NotAffine):
        form.bias(1)


def test_only_what_proves_it_evaluates_an_affine_question():
    package = Path(duat.__file__).parent
    users = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "affine=True" in path.read_text() or "import Seen, evaluate" in path.read_text()
    }
    asking = {"forms/affine_form.py", "forms/stream_flow.py", "forms/pre_activation.py"}
    assert users == asking | {f"transform/{name}.py" for name in ("activations", "editing", "query", "recording")}
