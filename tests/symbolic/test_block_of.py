"""The code that runs is what gets derived: a block that is read from a function's own program is that function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import FEATURES, close, make_input, make_stack, modern, numbers
from sympy import sympify

import duat_jax as duat
from duat_jax import hold, offset, stream, term
from duat_jax.nn import ACTIVATIONS, BLOCKS, BlockConfig
from duat_jax.transform.query import linear_map
from symbolic.blocks.block import Block
from symbolic.errors import NumbersDiffer, ShapeMismatch, SymbolicError
from symbolic.evaluation.bridge import name_of, to_jax
from symbolic.theorems.residual_stack import i

TOKENS = 3
A, B, C, D = (jnp.asarray(numbers(FEATURES, FEATURES, key=k)) / 3 for k in range(4))
WIDE, BACK = jnp.asarray(numbers(FEATURES, 8, key=4)), jnp.asarray(numbers(8, FEATURES, key=5))
KERNELS, BIAS = jnp.asarray(numbers(3, FEATURES, FEATURES, key=6)) / 3, jnp.asarray(numbers(FEATURES, key=7))
FILTER, ROWS = jnp.asarray(numbers(2, FEATURES, FEATURES, key=8)), numbers(TOKENS, TOKENS, key=9)


def convolution(x):
    """A causal convolution over the tokens, with a bias and an activation."""
    y = jax.lax.conv_general_dilated(x[None], FILTER, (1,), [(1, 0)], dimension_numbers=("NTC", "TIO", "NTC"))[0]
    return x + term(jnp.tanh, y + offset(BIAS, "conv.bias"), "conv")


def pattern(x):
    return hold(jax.nn.softmax(x @ x.T), "attention.pattern")


def leaky(slope):
    return lambda z: jnp.where(z > 0, z, slope * z)


def scanned(x):
    def body(x, kernel):
        y = jnp.roll(x, 1, 0) @ kernel
        return x + term(jax.nn.relu, y, "step"), y.sum(0)

    x, sums = jax.lax.scan(body, x, KERNELS, reverse=True)
    return x - sums


def scanned_over_tokens(x):
    def body(state, token):
        return 0.5 * state + token @ A, state - BIAS

    state, before = jax.lax.scan(body, jnp.zeros(FEATURES), x)
    return before + state


class Mine(nnx.Module):
    """A user's own layer, from Flax's own parts, whose biases have no marks."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.mix, self.back = (nnx.Linear(*s, rngs=rngs, param_dtype=jnp.float64) for s in ((6, 8), (8, 6)))
        self.mix.bias = nnx.Param(jnp.arange(8.0))
        self.dropout = nnx.Dropout(0.5, rngs=rngs, deterministic=True)
        self.gain = nnx.Param(jnp.arange(1.0, 7.0))

    def __call__(self, x):  # noqa: D102
        scale = hold(jax.lax.rsqrt((x * x).mean(-1, keepdims=True)), "scale")
        return x + self.dropout(self.back(term(nnx.relu, self.mix(x * scale * self.gain), "mine")))


FUNCTIONS = {
    "two terms": lambda x: (
        x + term(jnp.tanh, x @ WIDE, "first") @ BACK + term(jax.nn.silu, x @ A + offset(BIAS, "b"), "second") @ B
    ),
    "attention only": lambda x: x + pattern(x) @ (x @ A) @ B,
    "attention without a residual": lambda x: pattern(x) @ x @ A + offset(BIAS, "b"),
    "one term into another": lambda x: x + term(jnp.tanh, term(jax.nn.relu, x @ WIDE, "a") @ BACK + x @ A, "b") @ C,
    "convolution": convolution,
    "module": Mine(),
    "numpy": lambda x: ROWS @ x + x @ np.asarray(A),
    "no mark on a bias": lambda x: x @ A + BIAS,
    "differences": lambda x: 2.5 * x - x @ A - BIAS - x[::-1],
    "minus": lambda x: -x,
    "scaled by no simple number": lambda x: 0.1 * x - 0.3 * (x @ A),
    "pieces": lambda x: jnp.concatenate([x[:, 4:] @ A[4:, :4], x[:, :2]], 1) + jnp.cumsum(x, 0)[:, ::-1],
    "chosen": lambda x: jnp.where(jnp.arange(3)[:, None] > 0, x @ A, 1.0),
    "split": lambda x: sum(jnp.split(x @ A, 2, axis=1)) @ A[:3] + x,
    "gathered and set": lambda x: x.at[1].set(x[jnp.array([2, 0])].sum(0) @ A),
    "held and added": lambda x: x + hold(jnp.tanh(x), "moved"),
    "gated": lambda x: hold(jnp.tanh(x @ A), "gate") * x * BIAS,
    "only a bias": lambda x: offset(BIAS, "b") + jnp.zeros((TOKENS, 1)),
    "term of a bias": lambda x: x + term(jnp.tanh, BIAS, "bias"),
    "slope with a weight": lambda x: x + term(lambda z: jnp.where(z > 0, z, jax.nn.softplus(BIAS) * z), x @ A, "t"),
    "held in an activation": lambda x: x + term(lambda z: hold(jnp.abs(z), "slope") * z, x @ A, "t"),
    "other activations": lambda x: (
        term(leaky(0.1), x, "a") + term(leaky(0.2), x @ A, "b") + term(leaky(0.1), x @ B, "c")
    ),
    "scan": scanned,
    "scan over tokens": scanned_over_tokens,
    "loop": lambda x: jax.lax.fori_loop(0, 2, lambda _, y: y @ A, x),
    "by token": jax.vmap(lambda token: token + A @ term(jnp.tanh, B @ token + offset(BIAS, "b"), "mlp")),
    "jitted": jax.jit(lambda x: x + jax.checkpoint(lambda y: term(jnp.tanh, y @ A, "t"))(x)),
    "solved": lambda x: jnp.linalg.solve(A, x.T).T,
    "streams": lambda x: stream(stream(x, "layer") + term(jnp.tanh, x @ A, "t"), "layer"),
}

X = make_input(TOKENS)
KINDS = {
    **BLOCKS,
    "modern": modern,
    "gated post-norm": lambda **s: BlockConfig(arrangement="post-norm", mlp="gated", **s),
    "parallel, grouped, rms": lambda **s: BlockConfig(
        arrangement="parallel", norm="rms", norm_weight_offset=1.0, **(s | {"heads": 6, "key_value_heads": 2})
    ),
    "pre-norm without a norm's offset": lambda **s: BlockConfig(arrangement="pre-norm", norm_bias=False, **s),
}


def layers_of(kind, layers=1, *, causal=True, activation="gelu"):
    """Return the blocks of a random stack, each as a function of its stream."""
    stack = make_stack(kind, layers, causal=causal, activation=activation)
    return [lambda x, block=block: block(x) for block in stack.blocks]


def at(expression, k=1):
    return expression.xreplace({i: sympify(k - 1)})


def value_of(block, x, expression):
    """Evaluate an expression of layer 1 through the bridge, with the block's own arrays."""
    arrays = {name_of(block.stack.x(0)): x.reshape(-1, 1)}
    for parameter in (*block.weights, *block.held):
        unindexed = parameter.func(parameter.letter, parameter.lower[1:], *parameter.shape)
        arrays[name_of(at(parameter))] = block.values[name_of(unindexed)]
    return to_jax(at(expression), block.functions, block.parameters)(arrays)


def check(fn, x):
    """The block that is read is the function, its parameters are those of record and replay, and it is proved."""
    block = Block.from_function(fn, x)
    close(value_of(block, x, block.written), fn(x))
    form, s = duat.unroll(fn, x), block.stack
    numbers_of = term_numbers(block, form, x)
    expected = {s.W(1, 1): form.input_map().dense(), s.b(1, 3): form.bias()}
    for t, j in numbers_of.items():
        expected[s.W(1, 2, t)], expected[s.W(1, 3, t)] = form.inner_map(j).dense(), form.outer_map(j).dense()
        if not s.earlier(t):
            expected[s.b(1, 2, t)] = form.inner_bias(j)
        for r in s.earlier(t):
            activation = form.recording.activations[numbers_of[r] - 1]
            expected[s.coupling(1, t, r)] = linear_map(form.recording, activation, form.terms[j - 1]).dense()
    for parameter, array in expected.items():
        close(value_of(block, x, parameter), array)
    assert block.residual_terms().verified
    assert block.prove().verified
    return block


def term_numbers(block, form, x):
    """Return which of the function's terms each of the block's is: the one with the same pre-activation."""
    found = {}
    for t in block.stack.terms:
        z = value_of(block, x, block.stack.pre_activation(i + 1, t))
        near = {
            j: float(jnp.abs(form.recording.at(step).ravel() - z).max())
            for j, step in enumerate(form.terms, 1)
            if form.recording.at(step).size == z.size
        }
        found[t] = min(near, key=near.get)
    assert sorted(found.values()) == list(range(1, len(form.terms) + 1))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_what_its_program_says(kind):
    (layer,) = layers_of(KINDS[kind])
    block = check(layer, X)
    term_of_the_layer = duat.unroll(lambda x: stream(layer(stream(x, "layer")), "layer"), X).residual_term(1)
    for parameter, part in (
        (block.stack.W(1, 1), term_of_the_layer.path.dense()),
        (block.stack.b(1, 3), term_of_the_layer.path_bias),
        (block.stack.W(1, 2), term_of_the_layer.inner.dense()),
        (block.stack.b(1, 2), term_of_the_layer.inner_bias),
        (block.stack.W(1, 3), term_of_the_layer.outer.dense()),
    ):
        close(value_of(block, X, parameter), part)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_has_its_own_name(activation):
    (layer,) = layers_of("post-norm", causal=False, activation=activation)
    block = Block.from_function(layer, X)
    close(value_of(block, X, block.written), layer(X))
    assert set(block.functions) == {activation.replace("_", "-")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_marked_function_is_what_its_program_says(name):
    check(FUNCTIONS[name], X)


def test_what_is_printed_is_what_one_would_write():
    (layer,) = layers_of(lambda **sizes: BlockConfig(arrangement="pre-norm", **sizes))
    block = Block.from_function(layer, X)
    attention = "O′ᵢ₊₁ H′ᵢ₊₁ (V′ᵢ₊₁ (N′ᵢ₊₁,₁ D′ᵢ₊₁,₁ x′ᵢ + n′ᵢ₊₁,₁) + v′ᵢ₊₁) + o′ᵢ₊₁"
    inside = f"F′ᵢ₊₁,₁ (N′ᵢ₊₁,₂ D′ᵢ₊₁,₂ (x′ᵢ + {attention}) + n′ᵢ₊₁,₂) + f′ᵢ₊₁,₁"
    assert str(block.written) == f"x′ᵢ + {attention} + F′ᵢ₊₁,₂ gelu({inside}) + f′ᵢ₊₁,₂"
    assert str(block.held) == "(D′ᵢ₊₁,₁, D′ᵢ₊₁,₂, H′ᵢ₊₁)"
    assert {letter: str(entry) for letter, entry in block.legend.items()} == {
        "D'[1]": "norm_1.scale (held)",
        "N'[1]": "block.norm_1.scale (weight)",
        "n'[1]": "norm_1.offset (offset)",
        "V'": "block.attention.value.kernel (weight)",
        "v'": "attention.value.bias (offset)",
        "H'": "attention.pattern (held)",
        "O'": "block.attention.output.kernel (weight)",
        "o'": "attention.output.bias (offset)",
        "D'[2]": "norm_2.scale (held)",
        "N'[2]": "block.norm_2.scale (weight)",
        "n'[2]": "norm_2.offset (offset)",
        "F'[1]": "block.mlp.input.kernel (weight)",
        "f'[1]": "mlp.input.bias (offset)",
        "F'[2]": "block.mlp.output.kernel (weight)",
        "f'[2]": "mlp.output.bias (offset)",
    }
    assert "V'_{i+1}: block.attention.value.kernel (weight)." in block.residual_terms().remark
    assert block.legend["D'[1]"].operations[-1] == "mul"


def test_every_letter_has_the_numbers_that_the_theory_gives_it():
    (block,) = make_stack("pre-norm", 1).blocks
    read, held = Block.from_function(block, X), duat.record(block)(X).dynamics.held
    tokens, ones = np.eye(TOKENS), np.ones(TOKENS)
    centred = np.eye(FEATURES) - np.full((FEATURES, FEATURES), 1 / FEATURES)
    heads = [np.eye(FEATURES)[:, k : k + 3] for k in (0, 3)]
    expected = {
        "F'[1]": np.kron(tokens, block.mlp.input.kernel[...].T),
        "f'[1]": np.kron(ones, block.mlp.input.bias[...]),
        "D'[1]": np.kron(np.diag(held["norm_1.scale"][:, 0]), centred),
        "N'[2]": np.kron(tokens, np.diag(block.norm_2.scale[...])),
        "O'": np.kron(tokens, block.attention.output.kernel[...].T),
        "H'": sum(np.kron(held["attention.pattern"][h], s @ s.T) for h, s in enumerate(heads)),
    }
    for name, array in expected.items():
        close(read.values[name], array)


def test_a_thing_that_is_used_twice_is_written_once():
    loud, right = BIAS, C

    def layer(x):
        y = (x @ A) * loud
        return y + term(jnp.tanh, y @ right, "t")

    assert str(check(layer, X).written) == "L′ᵢ₊₁ A′ᵢ₊₁ x′ᵢ + tanh(R′ᵢ₊₁ L′ᵢ₊₁ A′ᵢ₊₁ x′ᵢ)"


@pytest.mark.parametrize(
    ("fn", "written"),
    [
        (lambda x: x @ A + (A.T @ x.T).T, "A′ᵢ₊₁ x′ᵢ + A′ᵢ₊₁ x′ᵢ"),
        (lambda x: x @ A + term(jnp.tanh, jnp.einsum("fg,tf->tg", A, x), "t"), "A′ᵢ₊₁ x′ᵢ + tanh(A′ᵢ₊₁ x′ᵢ)"),
        (lambda x: x + term(jnp.tanh, x @ A, "t") @ A.T, "x′ᵢ + A′ᵢ₊₁.T tanh(A′ᵢ₊₁ x′ᵢ)"),
        (lambda x: term(jnp.tanh, (A @ x.T).T, "t") @ A.T + x @ A.T, "A′ᵢ₊₁ tanh(A′ᵢ₊₁ x′ᵢ) + A′ᵢ₊₁ x′ᵢ"),
        (lambda x: x * BIAS + term(jnp.tanh, BIAS[None] * x, "t"), "B′ᵢ₊₁ x′ᵢ + tanh(B′ᵢ₊₁ x′ᵢ)"),
        (lambda x: (h := pattern(x)) @ x @ A + (x.T @ h.T).T @ B, "A′ᵢ₊₁ H′ᵢ₊₁ x′ᵢ + B′ᵢ₊₁ H′ᵢ₊₁ x′ᵢ"),
        (lambda x: x[::-1] + term(jnp.tanh, jnp.flip(x, 0), "t"), "S′ᵢ₊₁ x′ᵢ + tanh(S′ᵢ₊₁ x′ᵢ)"),
        (lambda x: x @ A + term(jnp.tanh, x @ A[::-1], "t"), "A′ᵢ₊₁,₂ x′ᵢ + tanh(A′ᵢ₊₁,₁ x′ᵢ)"),
    ],
)
def test_a_weight_that_is_used_twice_has_one_letter_in_any_order(fn, written):
    block = check(fn, X)
    assert str(block.written) == written


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("differences", "(5/2) x′ᵢ − A′ᵢ₊₁ x′ᵢ − b′ᵢ₊₁ − S′ᵢ₊₁ x′ᵢ"),
        ("scaled by no simple number", "S′ᵢ₊₁ x′ᵢ − A′ᵢ₊₁ x′ᵢ"),
        ("minus", "−x′ᵢ"),
        ("held and added", "x′ᵢ + m′ᵢ₊₁"),
        ("gated", "B′ᵢ₊₁ G′ᵢ₊₁ x′ᵢ"),
        ("convolution", "x′ᵢ + tanh(F′ᵢ₊₁ x′ᵢ + c′ᵢ₊₁)"),
        ("numpy", "R′ᵢ₊₁ x′ᵢ + A′ᵢ₊₁ x′ᵢ"),
        ("module", "x′ᵢ + B′ᵢ₊₁ relu(M′ᵢ₊₁ G′ᵢ₊₁ D′ᵢ₊₁ x′ᵢ + m′ᵢ₊₁) + b′ᵢ₊₁"),
    ],
)
def test_what_multiplies_has_a_letter_and_only_that(name, written):
    assert str(Block.from_function(FUNCTIONS[name], X).written) == written


@pytest.mark.parametrize("kind", ["pre-norm", "post-norm", pytest.param("modern", marks=pytest.mark.slow)])
def test_the_closed_form_of_a_stack_of_programs_is_the_stack(kind):
    layers, x, read = layers_of(KINDS[kind], 3), X, []
    for layer in layers:
        read.append(Block.from_function(layer, x))
        x = layer(x)
    assert len({str(block.written) for block in read}) == 1
    numbers_of = read[0].verify(layers, X, [block.values for block in read], read[0].functions)
    assert numbers_of.rows[-1].formula == "the closed form at depth 3"
    assert numbers_of.holds


def test_what_follows_from_a_block_follows_from_a_program():
    block = Block.from_function(FUNCTIONS["two terms"], X)
    for derivation in (block.recursions(), block.collapse(), block.contributions(), block.unroll(2)):
        assert derivation.verified
    assert r"\operatorname{silu}" in block.document()


def test_the_embedded_models_layer():
    model = duat.load(dtype=jnp.float64)
    layer, x = model.stack.blocks[0], model.embed(jnp.array([5, 7]))
    block = Block.from_function(layer, x)
    close(value_of(block, x, block.written), layer(x))
    assert len(block.legend) == 15
    assert block.prove().verified


def test_another_weight_is_noticed():
    (block,) = make_stack("pre-norm", 1).blocks
    read = Block.from_function(block, X)
    assert read.verify(block, X, read.values, read.functions).holds
    kernel = block.mlp.output.kernel
    kernel[...] = kernel[...].at[0, 0].add(1e-6)
    again = Block.from_function(block, X)
    assert float(again.values["F'[2]"][0, 0] - read.values["F'[2]"][0, 0]) == pytest.approx(1e-6)
    with pytest.raises(NumbersDiffer, match="✗ layer 1  the block as written"):
        read.verify(lambda x: block(x), X, read.values, read.functions)


def without_a_hold(x):
    scale = jax.lax.rsqrt((x * x).mean(-1, keepdims=True))
    return x + (x * scale) @ A


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (without_a_hold, r"test_block_of.py:\d+ \(without_a_hold\): mul isn't linear .*hold\(factor, name\)"),
        (lambda x: x + jnp.tanh(x @ A), r"test_block_of.py:\d+ .*: tanh isn't linear .*term\(activation, z, name\)"),
        (lambda x: x + jax.nn.softmax(x @ x.T) @ x, "dot_general isn't linear"),
        (lambda x: term(jax.nn.softmax, x, "t"), r"term\('t'\) isn't elementwise"),
        (lambda x: offset(x[0], "b") + x, r"offset\('b'\) depends on what flows"),
        (lambda x: jax.lax.cond(BIAS[0] > 0, lambda y: y @ A, lambda y: y, x), r"\): cond has no symbol yet .*where"),
    ],
)
def test_what_has_no_symbol_is_named_with_its_line_and_the_remedy(fn, words):
    with pytest.raises(SymbolicError, match=words):
        Block.from_function(fn, X)


@pytest.mark.parametrize(
    ("fn", "x", "words"),
    [
        (lambda x: x @ WIDE, X, r"takes float64\[3,6\] and gives float64\[3,8\]"),
        (lambda x: x.T, X, r"takes float64\[3,6\] and gives float64\[6,3\]"),
        (lambda x: (x, x), X, r"gives float64\[3,6\], float64\[3,6\]"),
        (lambda x: x["a"] + x["b"], {"a": X, "b": X}, r"takes float64\[3,6\], float64\[3,6\]"),
        (lambda x: x + 1, jnp.arange(3), "one array of real numbers"),
    ],
)
def test_a_stream_has_one_shape(fn, x, words):
    with pytest.raises(ShapeMismatch, match=words):
        Block.from_function(fn, x)


def test_what_is_held_in_an_activation_stays_as_it_is():
    read = Block.from_function(FUNCTIONS["held in an activation"], X)
    z = (X @ A).reshape(-1, 1)
    close(read.functions["σ"](2 * z), 2 * z * jnp.abs(z))


def test_complex_numbers_have_no_letter():
    factors = [jnp.array(np.exp(k * 1j * np.arange(3.0))[:, None]) for k in (1, 2)]

    def filtered(x):
        waves = jnp.fft.fft(x.astype(complex), axis=0)
        return x + jnp.fft.ifft(waves * factors[0] * factors[1], axis=0).real

    with pytest.raises(SymbolicError, match="is complex, and the letters are real"):
        Block.from_function(filtered, jnp.ones((3, 2)))
