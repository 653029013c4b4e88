"""The collapse is one affine map that equals the output, and is the derivative where the activation is linear."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from functions import scan_of
from helpers import BLOCK_NAMES, close, make_input, make_stack, near, numbers, relative

import duat_jax as duat
from duat_jax.forms.affine_form import GATE_RULES, KINDS, collapsed_contributions
from duat_jax.forms.coefficients import coefficients
from duat_jax.forms.completeness import HOLDS
from duat_jax.nn import ACTIVATIONS
from duat_jax.transform.recording import record_kinds


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_the_collapse_equals_the_output(block, activation):
    stack, x = make_stack(block, 3, activation=activation), make_input()
    linear, bias = jax.jit(lambda x: [f := duat.collapse(stack, x), (f.linear(x), f.bias)][1])(x)
    close(linear + bias, stack(x), layers=6)


def test_the_dense_collapse_acts_as_the_map_does():
    stack, x = make_stack("pre-norm", 2), make_input(3)
    linear, bias, _ = duat.collapse(stack, x)
    close(linear.dense() @ x.reshape(-1) + bias.reshape(-1), stack(x))
    close(linear.T.dense(), linear.dense().T)


def test_of_a_relu_network_the_collapse_is_the_jacobian():
    """Piecewise linear: exact in a neighbourhood, so the held slope is the derivative."""
    kernels = jax.random.normal(jax.random.key(0), (3, 6, 6)) / 2

    def network(x):
        for kernel in kernels:
            x = x + duat.term(jax.nn.relu, x @ kernel + duat.offset(kernel[0], "bias"), "mlp")
        return x

    x = make_input(1)[0]
    linear, bias, _ = duat.collapse(network, x)
    close(linear.dense(), jax.jacobian(network)(x))
    nearby = x + 1e-4
    close(linear(nearby) + bias, network(nearby))


@pytest.mark.parametrize("activation", ["sigmoid", "gelu", "tanh", "relu"])
def test_at_zero_the_slope_is_the_derivative_and_sigma_of_zero_is_a_bias(activation):
    sigma = ACTIVATIONS[activation]
    linear, bias, _ = duat.collapse(lambda x: duat.term(sigma, x, "term"), jnp.zeros(3))
    both_sides = (jax.grad(sigma)(1e-12) + jax.grad(sigma)(-1e-12)) / 2
    close(linear.dense(), np.diag(np.full(3, both_sides)))
    close(bias, np.full(3, sigma(0.0)))


NEAR = {
    "sigmoid": (jax.nn.sigmoid, lambda z: 1 / (1 + mpmath.exp(-z))),
    "exp": (jnp.exp, mpmath.exp),
    "softplus": (jax.nn.softplus, lambda z: mpmath.log1p(mpmath.exp(z))),
    "softplus by hand": (
        lambda z: jnp.maximum(z, 0) + jnp.log1p(jnp.exp(-jnp.abs(z))),
        lambda z: mpmath.log1p(mpmath.exp(z)),
    ),
    "gelu": (ACTIVATIONS["gelu"], lambda z: z * mpmath.erfc(-z / mpmath.sqrt(2)) / 2),
    "silu": (jax.nn.silu, lambda z: z / (1 + mpmath.exp(-z))),
    "tanh": (jnp.tanh, mpmath.tanh),
    "bent near zero": (lambda z: jax.nn.relu(z - 0.01), lambda z: max(z - mpmath.mpf(0.01), 0)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NEAR)
def test_slopes_are_right_from_zero_to_large_pre_activations(name, dtype):
    sigma, exact = NEAR[name]
    z = np.array([1e-30, 1e-8, 1e-7, -7e-8, 1e-5, -1e-3, 0.009, 0.02, -0.1, 0.4, 1, -3, 8], dtype)
    form = duat.collapse(lambda x: duat.term(sigma, x, "term"), jnp.array(z))
    with mpmath.workdps(60):
        expected = [float((exact(mpmath.mpf(float(at))) - exact(mpmath.mpf(0))) / mpmath.mpf(float(at))) for at in z]
    rtol = 1e3 * float(jnp.finfo(dtype).eps)
    relative(np.diag(form.linear.dense()), expected, within=rtol)
    assert form.completeness.holds.all()


@pytest.mark.parametrize(("name", "sigma"), {"log": jnp.log, "1 / z": lambda z: 1 / z}.items())
def test_a_term_that_isnt_finite_at_zero_is_its_ratio_and_carries_no_constant(name, sigma):
    z = jnp.array([1e-30, 0.5, 1, np.e, 3e4])
    form = duat.collapse(lambda x: duat.term(sigma, x, "term"), z)
    relative(np.diag(form.linear.dense()), sigma(z) / z, within=1e-14)
    near(form.bias, np.zeros(5), within=0)
    assert form.completeness.verdict == HOLDS


@pytest.mark.parametrize(("activation", "scanned"), [("sigmoid", True), ("gelu", False)])
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_contributions_of_the_collapse_are_its_matrix_times_the_input(block, activation, scanned):
    stack, x = make_stack(block, 2, activation=activation), make_input(3)
    fn = scan_of(stack) if scanned else stack

    def readout(x):
        return fn(x)[-1, 2]

    contributions = collapsed_contributions(record_kinds(readout, x, KINDS))
    assert contributions.completeness.holds
    linear, bias, _ = duat.collapse(stack, x)
    row = linear.dense().reshape(3, 6, 3, 6)[-1, 2]
    close(contributions.input, row * x)
    close(contributions.bias, bias[-1, 2])
    close(contributions.input.sum() + contributions.bias, readout(x))


def test_an_unmarked_constant_is_in_the_bias_of_the_collapse():
    x = make_input()
    contributions = collapsed_contributions(record_kinds(lambda x: (x + 3.0).sum(), x, KINDS))
    close(contributions.bias, 3.0 * x.size)
    assert contributions.completeness.holds


LAYERS, NEURONS = 3, 8
GATED = {
    "gate": (LAYERS, 6, NEURONS),
    "factor": (LAYERS, 6, NEURONS),
    "output": (LAYERS, NEURONS, 6),
    "gate bias": (LAYERS, NEURONS),
    "factor bias": (LAYERS, NEURONS),
    "output bias": (LAYERS, 6),
}
GATED = {name: jax.random.normal(jax.random.key(i), shape) / 2 for i, (name, shape) in enumerate(GATED.items())}
READ = numbers(4, 6, key=9)


def gated_layer(x, w):
    gate = x @ w["gate"] + duat.offset(w["gate bias"], "gate bias")
    factor = duat.hold(x @ w["factor"] + duat.offset(w["factor bias"], "factor bias"), "factor")
    added = duat.term(jax.nn.sigmoid, gate, "mlp", outer=lambda activated: (factor * activated) @ w["output"])
    return duat.stream(x + added + duat.offset(w["output bias"], "output bias"), "layer")


def gated_network(x, around):
    if around == "scan":
        x = jax.lax.scan(lambda x, w: (gated_layer(x, w), None), x, GATED)[0]
    else:
        layer = jax.checkpoint(gated_layer) if around == "remat" else gated_layer
        for i in range(LAYERS):
            with jax.named_scope(f"layers.{i}"):
                x = layer(x, {name: values[i] for name, values in GATED.items()})
    return (x * READ).sum()


def carried(x0, share, *, start=0, x=None, more=0.0):
    """The same by hand, at `x0`: the read-out of what flows from a stream, and of what is added to activations."""
    held, x = x0, x0 if x is None else x
    for i in range(LAYERS):
        w = {name: values[i] for name, values in GATED.items()}
        gate, factor = held @ w["gate"] + w["gate bias"], held @ w["factor"] + w["factor bias"]
        activated = 1 / (1 + jnp.exp(-gate))
        if i >= start:
            flowing = 0.5 + (activated - 0.5) / gate * (x @ w["gate"] + w["gate bias"])
            by_factor = activated * (x @ w["factor"] + w["factor bias"])
            neurons = (1 - share) * flowing * factor + share * by_factor + (factor * more[i] if start == 0 else 0)
            x = x + neurons @ w["output"] + w["output bias"]
        held = held + (activated * factor) @ w["output"] + w["output bias"]
    return (x * READ).sum()


@pytest.mark.parametrize(
    ("gate_rule", "around"),
    [*((gate_rule, "loop") for gate_rule in GATE_RULES), ("halves", "scan"), ("halves", "remat")],
)
def test_the_gate_rule_is_asked_of_one_recording(gate_rule, around):
    x, share = make_input(), GATE_RULES[gate_rule]
    fn = partial(gated_network, around=around)
    found = collapsed_contributions(record_kinds(fn, x, KINDS), gate_rule=gate_rule)
    assert found.completeness.verdict == "holds"
    nothing = jnp.zeros((LAYERS, 4, NEURONS))
    on_input, on_neurons = jax.grad(lambda x1, more: carried(x, share, x=x1, more=more), (0, 1))(x, nothing)
    close(found.input, on_input * x)
    close(found.bias, carried(x, share, x=jnp.zeros_like(x), more=nothing))
    activations = duat.record(fn)(x).dynamics.activations
    assert found.neurons.keys() == activations.keys()
    together = [jnp.stack([*values.values()]).reshape(LAYERS, 4, NEURONS) for values in (found.neurons, activations)]
    close(together[0], on_neurons * together[1])
    collapse = duat.collapse(fn, x, gate_rule=gate_rule)
    close(collapse.linear.T(jnp.ones(())), on_input)
    assert collapse.completeness.verdict == "holds"


@pytest.mark.parametrize("gate_rule", GATE_RULES)
def test_every_cut_of_the_collapse_is_the_value(gate_rule):
    """At every layer the part of its stream and the parts of the biases after it sum to the value."""
    x, share = make_input(), GATE_RULES[gate_rule]
    recording = duat.record(partial(gated_network, around="loop"))(x)
    streams = recording.streams
    found = coefficients(recording, [step.site for step in streams], slopes=True, gate_rule=gate_rule)
    parts = [jnp.vdot(found[step.site], recording.at(step)) for step in streams]
    for i, part in enumerate(parts, 1):
        close(part + carried(x, share, start=i, x=jnp.zeros_like(x)), recording.value)
    assert abs(parts[0] - parts[1]) > 0.1


def test_without_a_word_halves_carry():
    recording = record_kinds(partial(gated_network, around="loop"), make_input(), KINDS)
    close(collapsed_contributions(recording).input, collapsed_contributions(recording, gate_rule="halves").input)


def times(activation, factor):
    return activation * duat.hold(factor, "factor")


NOT_SHARED = {
    "a factor that bends": lambda x: duat.term(jnp.tanh, 2 * x, "mlp", outer=lambda a: times(a, jnp.sin(x))),
    "a factor that stands still": lambda x: duat.term(
        jnp.tanh, 2 * x, "mlp", outer=lambda a: times(a, jnp.arange(3.0))
    ),
    "an activation used twice": lambda x: duat.term(jnp.tanh, 2 * x, "mlp", outer=lambda a: times(a, x) + a),
    "no factor": lambda x: duat.term(jnp.tanh, 2 * x, "mlp"),
}


@pytest.mark.parametrize("why", NOT_SHARED)
def test_only_a_factor_that_flows_linearly_may_carry(why):
    x = jnp.arange(1.0, 4.0)
    assert duat.collapse(NOT_SHARED[why], x).completeness.verdict == "holds"
    for gate_rule in ("factor", "halves"):
        with pytest.raises(duat.DuatError, match="is for gated terms, whose activation is multiplied"):
            duat.collapse(NOT_SHARED[why], x, gate_rule=gate_rule)


def test_an_unmarked_constant_in_a_factor_is_in_the_bias():
    def fn(x):
        return duat.term(jnp.tanh, 2 * x, "mlp", outer=lambda a: a * duat.hold(3 * x + 1.0, "factor")).sum()

    x = jnp.arange(1.0, 4.0)
    found = collapsed_contributions(record_kinds(fn, x, KINDS), gate_rule="factor")
    close(found.bias, jnp.tanh(2 * x).sum())
    assert found.completeness.verdict == "holds"


def test_an_unknown_gate_rule_is_refused():
    with pytest.raises(duat.DuatError, match="gate_rule = 'both' isn't one of gate, factor, halves"):
        duat.collapse(partial(gated_network, around="loop"), make_input(), gate_rule="both")


def with_rules(sigma):
    """Return a function whose derivatives, by the rules that it brings, are 42 wherever one asks."""
    forward, backward = jax.custom_jvp(sigma), jax.custom_vjp(sigma)
    forward.defjvp(lambda primals, tangents: (sigma(*primals), 42 * tangents[0]))
    backward.defvjp(lambda z: (sigma(z), None), lambda _, cotangent: (42 * cotangent,))
    return forward, backward


FORWARD, BACKWARD = with_rules(lambda z: 1 + jnp.sin(z))
LENGTH = jnp.array([2])
UNTRUE = {
    "custom_jvp": (FORWARD, lambda z: 1 + jnp.sin(z)),
    "custom_vjp": (BACKWARD, lambda z: 1 + jnp.sin(z)),
    "within jit and remat": (jax.jit(jax.checkpoint(BACKWARD)), lambda z: 1 + jnp.sin(z)),
    "in a branch": (lambda z: jax.lax.cond(z.size > 0, FORWARD, BACKWARD, z), lambda z: 1 + jnp.sin(z)),
    "in a loop": (
        lambda z: jax.lax.fori_loop(0, 2, lambda _, a: BACKWARD(FORWARD(a)), z),
        lambda z: 1 + jnp.sin(1 + jnp.sin(1 + jnp.sin(1 + jnp.sin(z)))),
    ),
    "in a loop without an end that is known": (
        lambda z: jax.lax.while_loop(lambda s: s[0] < LENGTH[0], lambda s: (s[0] + 1, FORWARD(s[1])), (0, z))[1],
        lambda z: 1 + jnp.sin(1 + jnp.sin(z)),
    ),
    "stop_gradient": (lambda z: 1 + z + jax.lax.stop_gradient(jnp.tanh(z)), lambda z: 1 + z + jnp.tanh(z)),
    "straight through": (lambda z: z + jax.lax.stop_gradient(jnp.round(z) - z), jnp.round),
    "a term within a term": (lambda z: z + duat.term(jnp.tanh, 2 * z + 1, "inner"), lambda z: z + jnp.tanh(2 * z + 1)),
    "a term within a term within a term": (
        lambda z: duat.term(lambda z: duat.term(jnp.sin, 3 * z, "inner") - z, 2 * z + 1, "middle"),
        lambda z: jnp.sin(6 * z + 3) - 2 * z - 1,
    ),
}
"""Activations whose slope the program says otherwise, and the same plainly written."""


def of_all(activations):
    return lambda x: jnp.stack([duat.term(sigma, x, f"{i}") for i, sigma in enumerate(activations)])


def test_a_slope_is_that_of_the_function_whatever_the_program_says_of_its_derivative():
    x = jnp.array([0.0, 1e-17, 1e-9, 0.3])
    told, plain = zip(*UNTRUE.values(), strict=True)
    form = duat.collapse(of_all(told), x)
    assert form.completeness.holds.all()
    slopes = jnp.diagonal(form.linear.dense().reshape(len(UNTRUE), 4, 4), axis1=1, axis2=2)
    values, derivatives = jax.jit(lambda x: jax.jvp(lambda x: [sigma(x) for sigma in plain], (x,), (jnp.ones(4),)))(x)
    values, derivatives = jnp.stack(values), jnp.stack(derivatives)
    close(slopes[:, :2], derivatives[:, :2], layers=10)
    close(slopes[:, 3], (values[:, 3] - values[:, 0]) / x[3], layers=10)
    close(form.bias[:, 0], values[:, 0])


def test_the_closed_form_with_terms_within_terms_is_the_function():
    x = jnp.array([0.2, -0.4, 0.7])
    nested = of_all([sigma for name, (sigma, _) in UNTRUE.items() if "within a term" in name])
    close(duat.unroll(nested, x).apply(x - 0.5), nested(x - 0.5))


CANCELLING = {
    "sinc": (jnp.sinc, (0, -(np.pi**2) / 6)),
    "expm1(z) / z": (lambda z: jnp.where(z == 0, 1, jnp.expm1(z) / jnp.where(z == 0, 1, z)), (1 / 2, 1 / 6)),
    "log1p(z) / z": (lambda z: jnp.where(z == 0, 1, jnp.log1p(z) / jnp.where(z == 0, 1, z)), (-1 / 2, 1 / 3)),
    "2 - z sinc(z)": (lambda z: 2 - z * jnp.sinc(z), (-1, 0)),
    "a kink": (lambda z: 1 + jax.nn.relu(z + 1e-18), (1, 0)),
    "soft thresholding": (lambda z: jnp.sign(z) * jax.nn.relu(jnp.abs(z) - 1e-3), (0, 0)),
    "a steep sigmoid": (lambda z: jax.nn.sigmoid(1e4 * z), (2500, 0)),
}
"""Activations whose derivative is lost to rounding near zero, or that aren't smooth there: `σ'(0)`, `σ''(0) / 2`."""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_slope_near_zero_is_confirmed_by_values_on_both_sides(dtype):
    x, within = jnp.array([0, 1e-17, 1e-9], dtype), (32 * jnp.finfo(dtype).eps) ** (2 / 3)
    functions, series = zip(*CANCELLING.values(), strict=True)
    with jax.numpy_dtype_promotion("standard"):
        form = duat.collapse(of_all(functions), x)
    slopes = np.diagonal(np.asarray(form.linear.dense()).reshape(len(CANCELLING), 3, 3), axis1=1, axis2=2)
    first, second = np.array(series).T[..., None]
    expected = first + second * np.asarray(x)
    assert (np.abs(slopes - expected) <= within * (1 + np.abs(expected))).all()
    assert form.completeness.holds.all()
