"""The symbolic form as JAX functions, against record/replay, the dense recursions and the forward pass."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ENCODER, GOLDEN
from helpers import BLOCK_NAMES, close, make_input, make_stack
from sympy import Rational, Symbol

import duat_jax as duat
from duat_jax.errors import DuatError
from duat_jax.nn import ACTIVATIONS, BLOCKS
from duat_jax.reference.blocks import residual_terms
from duat_jax.reference.dense import vec
from duat_jax.reference.recursions import unroll_terms
from duat_jax.verification.compare import verify
from duat_jax.verification.networks import EMBEDDED, networks
from duat_jax.verification.routes import block_arrays, held_by_layer, symbolic_block
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.evaluation.bridge import name_of, parameters_of, to_jax
from symbolic.expressions.activation import Activation
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.theorems.lora import AdaptedStack, delta, first_order
from symbolic.theorems.residual_stack import ResidualStack
from symbolic.theorems.unrolled import unroll

S = ResidualStack()
DEEPEST = 32


def parameters(terms, x0):
    """Return the arrays of Eq. 20's symbols by name, from the residual term of every layer."""
    arrays = {name_of(S.x(0)): x0}
    for k, term in enumerate(terms, 1):
        arrays |= {
            name_of(S.W(k, 1)): term.path,
            name_of(S.b(k, 3)): term.path_bias,
            name_of(S.W(k, 2)): term.inner,
            name_of(S.b(k, 2)): term.inner_bias,
            name_of(S.W(k, 3)): term.outer,
        }
    return arrays


def arrays_of(stack, x):
    form = duat.unroll(stack, x)
    terms = residual_terms(stack, held_by_layer(form.dynamics, len(stack.blocks)))
    return form, terms, parameters(terms, vec(x))


@pytest.fixture(params=[f"{name}{mlp}" for mlp in ("", ", gated") for name in BLOCK_NAMES], scope="module")
def deep(request):
    """A stack of 32 layers, its forms at every depth by the dense recursions, and the symbolic parts at every depth.

    The symbols are those of the block as it is written, and its parameters of Eq. 20 those that were read off from it.
    """
    name, *gated = request.param.split(", ")
    stack = make_stack(partial(BLOCKS[name], mlp="gated" if gated else "plain"), DEEPEST, activation="tanh")
    x = make_input(2)
    form = duat.unroll(stack, x)
    held = held_by_layer(form.dynamics, DEEPEST)
    terms, block, arrays = (
        residual_terms(stack, held),
        symbolic_block(stack.blocks[0]),
        block_arrays(stack, held, vec(x)),
    )
    assert block.name.endswith("with a gated MLP") == bool(gated)
    wanted = {f"C/{j}": S.C(j, DEEPEST) for j in range(1, DEEPEST + 1)}
    for i in range(1, DEEPEST + 1):
        parts = {"P": S.P(i), "q": S.q(i), "UAT": S.UAT(i), "B": S.B(i), "c": S.c(i), "form": S.form(i)}
        wanted |= {f"{name}/{i}": part for name, part in parts.items()}
    symbolic = to_jax(wanted, ACTIVATIONS["tanh"], (*S.recursions, *block.parameters))(arrays)
    as_written = {f"x/{i}": S.x(i) for i in range(1, DEEPEST + 1)}
    symbolic |= to_jax(as_written, ACTIVATIONS["tanh"], (block.layer,))(arrays)
    return stack, x, form, unroll_terms(terms, ACTIVATIONS["tanh"], vec(x)), symbolic


@pytest.mark.slow
@pytest.mark.parametrize("depth", range(1, DEEPEST + 1))
def test_the_symbolic_form_is_the_forward_pass_and_the_recursions_at_every_depth(deep, depth):
    _, x, form, forms, symbolic = deep
    numeric = forms[depth]
    chex.assert_shape(symbolic[f"P/{depth}"], numeric.input.shape)
    close(symbolic[f"form/{depth}"], vec(form.dynamics.streams[f"layer[{depth}]"]), depth)
    close(symbolic[f"x/{depth}"], vec(form.dynamics.streams[f"layer[{depth}]"]), depth)
    close(symbolic[f"P/{depth}"], numeric.input, depth)
    close(symbolic[f"q/{depth}"], numeric.bias, depth)
    close(symbolic[f"UAT/{depth}"], numeric.term_sum(), depth)
    close(symbolic[f"B/{depth}"], numeric.terms[-1].inner, depth)
    close(symbolic[f"c/{depth}"], numeric.terms[-1].inner_bias, depth)
    close(symbolic[f"C/{depth}"], forms[-1].terms[depth - 1].outer, DEEPEST)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 7, 31, 32])
def test_the_symbolic_parameters_are_those_of_record_and_replay(deep, depth):
    stack, x, form, _, symbolic = deep
    close(symbolic[f"P/{depth}"], form.input_map(depth).dense(), depth)
    close(symbolic[f"q/{depth}"], vec(form.bias(depth)), depth)
    close(symbolic[f"UAT/{depth}"], vec(form.term_sum(depth)), depth)
    close(symbolic[f"B/{depth}"], form.inner_map(depth).dense(), depth)
    close(symbolic[f"c/{depth}"], vec(form.inner_bias(depth)), depth)
    close(symbolic[f"C/{depth}"], form.outer_map(depth, DEEPEST).dense(), DEEPEST)
    close(symbolic[f"form/{DEEPEST}"], vec(stack(x)), DEEPEST)


@pytest.mark.parametrize("block", BLOCK_NAMES)
@pytest.mark.parametrize("depth", [1, 3])
def test_verify_agrees_on_random_networks(block, depth):
    (result,) = networks(depth=depth, block=block)
    assert result.holds
    assert result.depth == depth
    assert [d.route for d in result.differences] == [
        "forward pass",
        "closed form by record and replay",
        "closed form by the recursions",
    ]
    assert all(0 < d.tolerance < 1e-10 for d in result.differences)


@pytest.mark.parametrize("name", ["gpt2", pytest.param("bert", marks=pytest.mark.slow)])
def test_verify_agrees_on_checkpoints(name):
    (result,) = networks(model=GOLDEN / name)
    assert result.holds


@pytest.mark.slow
def test_verify_agrees_on_the_embedded_model_and_a_real_encoder():
    for model in (EMBEDDED, ENCODER):
        (result,) = networks(model=model)
        assert result.holds
        assert result.depth == 6


def test_verify_notices_a_wrong_parameter():
    stack, x = make_stack("pre-norm", 2), make_input(3)
    result = verify(stack, x, "right")
    assert result.holds
    form, terms, arrays = arrays_of(stack, x)
    wrong = arrays | {name_of(S.b(1, 2)): arrays[name_of(S.b(1, 2))] + 1e-9}
    activation = ACTIVATIONS[stack.blocks[0].mlp.activation]
    whole = to_jax(S.form(2), activation, S.recursions)
    assert np.abs(whole(wrong) - vec(stack(x))).max() > 1e3 * result.differences[0].tolerance


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: list(networks(block="convolution")), ("'convolution'", "pre-norm")),
        (lambda: list(networks(depth=0)), ("depth is 0",)),
        (lambda: list(networks(block="paper", model=GOLDEN / "gpt2")), ("not both",)),
        (lambda: list(networks(depth=99, model=GOLDEN / "gpt2")), ("layers", "at most")),
        (lambda: verify(make_stack("paper", 1), jnp.zeros((20_000, 6)), "large"), ("GB", "fewer tokens")),
    ],
)
def test_verify_says_what_is_wrong(call, words):
    with pytest.raises((DuatError, SymbolicError)) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


def small_arrays(depth, key=0):
    width, neurons = 3, 4
    shapes = {name_of(S.x(0)): (width,)}
    for k in range(1, depth + 1):
        for parameter in (S.W(k, 1), S.W(k, 2), S.W(k, 3), S.b(k, 2), S.b(k, 3)):
            rows, columns = ({S.width: width, S.neurons: neurons}.get(n, n) for n in parameter.shape)
            shapes[name_of(parameter)] = (rows,) if columns == 1 else (rows, int(columns))
    keys = jax.random.split(jax.random.key(key), len(shapes))
    return {n: jax.random.normal(k, shape, jnp.float64) for k, (n, shape) in zip(keys, shapes.items())}


def test_a_derived_expression_composes_with_jit_grad_and_vmap():
    arrays = small_arrays(2)
    function = to_jax(S.form(2), jnp.tanh, S.recursions)
    chex.assert_trees_all_close(jax.jit(function)(arrays), function(arrays), rtol=1e-12)
    network = to_jax(normal_form(S.x(2), [S.equation_20]).expression(), jnp.tanh)
    name = name_of(S.W(1, 2))

    def loss(fn):
        return jax.grad(lambda w: fn(arrays | {name: w}).sum())(arrays[name])

    chex.assert_trees_all_close(loss(function), loss(network), rtol=1e-10)
    many = jax.vmap(lambda x: function(arrays | {name_of(S.x(0)): x}))(jnp.eye(3, dtype=jnp.float64))
    assert many.shape == (3, 3)


def test_the_printed_lines_of_the_unrolled_form_evaluate_to_the_network():
    arrays = small_arrays(3)
    names = [Definition(step.left, step.right) for step in unroll(3).steps if step.left.letter != "x'"]
    assert {name.left.letter for name in names} == {"P", "q", "B", "c", "C", "UAT"}
    chex.assert_trees_all_close(
        to_jax(S.form(3), jnp.tanh, names)(arrays), to_jax(S.x(3), jnp.tanh, [S.equation_20])(arrays), rtol=1e-12
    )


def test_the_adapted_recursions_are_the_adapted_network_and_the_first_order_is_its_derivative():
    arrays = small_arrays(3)
    changes = {
        name_of(delta(S.W(k, role))): 0.1
        * jax.random.normal(jax.random.key(9 * k + role), arrays[name].shape, jnp.float64)
        for k in (1, 2, 3)
        for role in (1, 2, 3)
        for name in [name_of(S.W(k, role))]
    }
    adapted = AdaptedStack()
    form = to_jax(adapted.form(3), jnp.tanh, adapted.recursions)(arrays | changes)
    summed = {n: a + changes[f"Δ{n}"] if f"Δ{n}" in changes else a for n, a in arrays.items()}
    plain = to_jax(S.x(3), jnp.tanh, [S.equation_20])
    chex.assert_trees_all_close(form, plain(summed), rtol=1e-12)

    network = normal_form(S.x(3), [S.equation_20]).expression()
    formal = first_order(network, lambda p: delta(p) if p.letter == "W'" else None)
    tangents = {n: changes.get(f"Δ{n}", jnp.zeros_like(a)) for n, a in arrays.items()}
    derivative = jax.jvp(plain, (arrays,), (tangents,))[1]
    chex.assert_trees_all_close(to_jax(formal, jnp.tanh)(arrays | changes), derivative, rtol=1e-10)


def test_every_kind_of_expression_evaluates():
    x = Variable("x", (), 2, 3)
    w, v = Parameter("W", (), 3, 2), Parameter("v", (), 2, 1)
    arrays = {"x": jnp.arange(6.0).reshape(2, 3), "W": jnp.arange(6.0).reshape(3, 2) - 2, "v": jnp.array([1.0, -2.0])}
    a, b, c = (arrays[n] for n in ("x", "W", "v"))
    cases = {
        "vec": (Vec(x * w), (a @ b).reshape(-1)),
        "kronecker": (Kronecker(x, w.T), jnp.kron(a, b.T)),
        "hadamard": (Hadamard(v, v), c * c),
        "diagonal": (Diagonal(v) * x, c[:, None] * a),
        "slope": (Activation(v, 1), 2 * c),
        "transpose": ((x * w).T * v, (a @ b).T @ c),
        "coefficient": (x * w - 3 * (x * w), -2 * (a @ b)),
    }
    found = to_jax({name: expression for name, (expression, _) in cases.items()}, jnp.square)(arrays)
    for name, (_, expected) in cases.items():
        chex.assert_trees_all_close(found[name], expected)


def test_whole_numbers_and_coefficients_in_sizes_become_floats():
    m, a = Symbol("M", integer=True, positive=True), Parameter("A", (), 2, 2)
    halved = to_jax(Rational(1, 2) * a, jnp.tanh)({"A": jnp.array([[1, 2], [3, 4]])})
    chex.assert_trees_all_close(halved, jnp.array([[0.5, 1.0], [1.5, 2.0]]))
    x = Parameter("x", (), m, 1)
    chex.assert_trees_all_close(to_jax((1 / m) * x, jnp.tanh)({"x": jnp.ones(4)}), jnp.full(4, 0.25))
    y = Parameter("y", (), 2 * m, 1)
    with pytest.raises(ShapeMismatch, match="y is 3"):
        to_jax(y + Kronecker(Parameter("v", (), 2, 1), x), jnp.tanh)(
            {"y": jnp.ones(3), "v": jnp.ones(2), "x": jnp.ones(2)}
        )


def test_verify_refuses_what_isnt_a_number():
    stack = make_stack("parallel", 3)
    stack.blocks[2].mlp.input.bias[...] = stack.blocks[2].mlp.input.bias[...].at[0].set(jnp.nan)
    assert not verify(stack, make_input(3), "not a number").holds
    still = verify(make_stack("paper", 1), jnp.zeros((2, 6)), "zero")
    assert still.holds


def test_names_of_parameters():
    assert sorted(parameters_of(S.form(1), definitions=S.recursions)) == [
        "W'[1,1]", "W'[1,2]", "W'[1,3]", "b'[1,2]", "b'[1,3]", "x'[0]",
    ]  # fmt: skip
    assert name_of(S.C(1, 2)) == "C[1](2)"
    assert name_of(Parameter("W", ("Q",), 2, 2)) == "W[Q]"


def test_what_is_missing_or_misshapen_is_named_all_at_once():
    function = to_jax(S.x(1), jnp.tanh, [S.equation_20])
    arrays = small_arrays(1)
    with pytest.raises(SymbolicError) as caught:
        function({n: a for n, a in arrays.items() if n not in ("W'[1,1]", "b'[1,2]")})
    assert "W'[1,1] (d × d)" in str(caught.value)
    assert "b'[1,2] (n × 1)" in str(caught.value)
    with pytest.raises(ShapeMismatch) as caught:
        function(arrays | {"W'[1,3]": jnp.ones((3, 9)), "b'[1,3]": jnp.ones((7,))})
    assert "W'[1,3]" in str(caught.value) or "W'[1,2]" in str(caught.value)
    assert "b'[1,3]" in str(caught.value)
    with pytest.raises(ShapeMismatch, match="axes"):
        function(arrays | {"W'[1,1]": jnp.ones(3)})
    with pytest.raises(SymbolicError, match="symbol"):
        from symbolic.theorems.residual_stack import i

        to_jax(S.recursions[7].right, jnp.tanh)
        del i
