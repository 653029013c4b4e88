"""Convolutions and the residual network made of them, against SciPy, dense matrices, autodiff and the symbolic form."""

import convolution_matrix as reference
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, numbers
from scipy.signal import correlate2d

import duat_jax as duat
from duat_jax.models.residual_network import ResidualNetwork
from duat_jax.nn import Convolution, ResidualConvolution
from duat_jax.reference.recursions import unroll_terms
from duat_jax.verification.networks import randomised
from symbolic import Block, activation, matrix, ones, vector
from symbolic.blocks.transformer import transformer_block
from symbolic.errors import NumbersDiffer
from symbolic.vectorisation import density

ROWS, COLUMNS, CHANNELS = 4, 3, 2
BOTH = jnp.float64, jnp.float32
DTYPES = jnp.float64, pytest.param(jnp.float32, marks=pytest.mark.slow)


def image(*shape, key=0, dtype=jnp.float64):
    return jnp.asarray(numbers(*(shape or (ROWS, COLUMNS, CHANNELS)), key=key), dtype)


def rounded(module, dtype):
    """Return a module with noise on every parameter, in one of two dtypes the same noise."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype), randomised(module))


def convolution(size=3, stride=1, dtype=jnp.float64):
    return rounded(Convolution(CHANNELS, 3, size, "edges", stride=stride, dtype=jnp.float64, rngs=nnx.Rngs(0)), dtype)


def layer(outputs=CHANNELS, stride=1, dtype=jnp.float64, key=0):
    made = ResidualConvolution(CHANNELS, outputs, "tanh", stride=stride, dtype=jnp.float64, rngs=nnx.Rngs(key))
    return rounded(made, dtype)


def network(dtype=jnp.float64, name="relu"):
    return rounded(ResidualNetwork(1, (2, 2, 3), 4, name, dtype=jnp.float64, rngs=nnx.Rngs(0)), dtype)


@pytest.mark.parametrize(
    ("size", "stride", "dtype"),
    [
        (3, 1, jnp.float64),
        (3, 2, jnp.float32),
        *(pytest.param(*case, dtype, marks=pytest.mark.slow) for case in ((1, 2), (5, 3)) for dtype in BOTH),
    ],
)
def test_a_convolution_is_what_scipy_and_the_toeplitz_matrix_say(size, stride, dtype):
    made, x = convolution(size, stride, dtype), image(dtype=dtype)
    kernel, bias = np.asarray(made.kernel[...], np.float64), np.asarray(made.bias[...], np.float64)
    expected = sum(
        correlate2d(x[..., c], kernel[:, :, c, o], mode="same")[::stride, ::stride, None] * np.eye(3)[o]
        for c in range(CHANNELS)
        for o in range(3)
    )
    assert made(x).dtype == dtype
    close(made(x), (expected + bias).astype(dtype))
    close(made.multiply(x), reference.convolution(made.kernel[...], ROWS, COLUMNS, stride) @ x.ravel())
    many = jnp.stack([x, -x, 2 * x])[:, None]
    close(made(many), jnp.stack([made(x), made(-x), made(2 * x)])[:, None])


def test_the_matrix_of_a_convolution_is_as_dense_as_counted():
    matrix = reference.convolution(jnp.ones((3, 3, 1, 1)), 1, 5)
    assert int((matrix != 0).sum()) == density.convolution(5, 3).density * matrix.size


LAYERS = {"identity": (CHANNELS, 1), "wider": (3, 2), "narrower": (1, 2), "of the same width": (CHANNELS, 2)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "dtype"), [*((kind, jnp.float64) for kind in LAYERS), ("narrower", jnp.float32)])
def test_a_layers_residual_term_is_that_of_the_matrices(kind, dtype):
    block, x = layer(*LAYERS[kind], dtype=dtype), image(dtype=dtype)
    expected = reference.residual_term(block, ROWS, COLUMNS)
    form = duat.unroll(lambda x: duat.stream(block(duat.stream(x, "layer")), "layer"), x)
    found = form.residual_term(1)
    for part in ("path", "inner", "outer"):
        close(getattr(found, part).dense(), getattr(expected, part))
    after = found.path_bias.shape[:2]
    close(jnp.broadcast_to(found.path_bias, form.value.shape), expected.path_bias)
    close(jnp.broadcast_to(found.inner_bias, (*after, block.output.kernel.shape[2])), expected.inner_bias)
    activated = jnp.tanh(expected.inner @ x.ravel() + expected.inner_bias)
    close(block(x), expected.path @ x.ravel() + expected.path_bias + expected.outer @ activated)
    assert form.layer_completeness(1).verdict == form.completeness().verdict == "holds"


def entries(x):
    return x.astype(jnp.float64).ravel()


def as_matrices(model):
    """The network as matrices on `x.ravel()`: the stem, the layers' residual terms, and the read-out."""
    stem = reference.convolution(model.stem.kernel[...], ROWS, COLUMNS), jnp.tile(model.stem.bias[...], ROWS * COLUMNS)
    terms, size = [], (ROWS, COLUMNS)
    for block in model.blocks:
        terms.append(reference.residual_term(block, *size))
        size = tuple(len(range(0, length, block.input.stride)) for length in size)
    mean = jnp.kron(jnp.ones((1, size[0] * size[1])) / (size[0] * size[1]), jnp.eye(model.head.kernel.shape[0]))
    return stem, terms, model.head.kernel[...].T @ mean


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_networks_closed_form_is_that_of_the_recursions(dtype):
    model, x = network(dtype, "gelu"), image(ROWS, COLUMNS, 1, dtype=dtype)
    (stem, bias), terms, readout = as_matrices(network(jnp.float64, "gelu"))
    x0 = stem @ entries(x) + bias
    forms = unroll_terms(terms, lambda z: jax.nn.gelu(z, approximate=False), x0)
    found = duat.unroll(model.output, x)
    for i, form in enumerate(forms):
        close(found.recording.at(found.streams[i]), form.evaluate(x0).astype(dtype))
        close(found.input_map(i).dense(), (form.input @ stem).astype(dtype))
        assert found.completeness(i).verdict == "holds"
    for j, term in enumerate(forms[-1].terms, 1):
        close(found.inner_map(j).dense(), (term.inner @ stem).astype(dtype))
        close(found.inner_bias(j), (term.inner_bias + term.inner @ bias).astype(dtype))
        close(found.outer_map(j).dense(), (readout @ term.outer).astype(dtype))
    close(model.output(x), readout.astype(dtype) @ found.recording.at(found.streams[-1]).ravel() + model.head.bias[...])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_logits_contributions_are_those_of_the_matrices(dtype):
    model, x = network(dtype), image(ROWS, COLUMNS, 1, dtype=dtype)
    (stem, bias), terms, readout = as_matrices(network())
    form = unroll_terms(terms, jax.nn.relu, stem @ entries(x) + bias)[-1]
    parts = duat.decompose(lambda x: model.output(x)[2], x)
    assert parts.completeness.verdict == "holds"
    close(parts.input, (readout[2] @ form.input @ stem * entries(x)).astype(dtype))
    for i, term in enumerate(form.terms):
        close(parts.terms[f"layers.{i}.convolution"], (readout[2] @ term.outer * term.activation).astype(dtype))
    close(parts.offsets["stem.bias"], (readout[2] @ form.input @ bias).astype(dtype))
    assert float(parts.offsets["layers.0.convolution.input.bias"]) == float(parts.unmarked) == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", BOTH)
def test_the_collapse_of_a_piecewise_linear_network_is_its_derivative(dtype):
    model, x = network(dtype), image(ROWS, COLUMNS, 1, dtype=dtype)
    form = duat.collapse(model.output, x)
    assert form.completeness.verdict == "holds"
    close(form.linear.dense(), jax.jacobian(network().output)(x.astype(jnp.float64)).astype(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", BOTH)
def test_the_secant_between_two_images_carries_every_layer_by_its_own(dtype):
    model, names = network(dtype, "sigmoid"), ("x", "y")
    at = {name: image(ROWS, COLUMNS, 1, key=k, dtype=dtype) for k, name in enumerate(names)}
    (stem, bias), terms, readout = as_matrices(network(jnp.float64, "sigmoid"))
    streams = {name: stem @ entries(x) + bias for name, x in at.items()}
    slopes = []
    for layer in terms:
        z = {name: layer.inner @ x + layer.inner_bias for name, x in streams.items()}
        a = {name: jax.nn.sigmoid(z[name]) for name in names}
        slopes.append((a["x"] - a["y"]) / (z["x"] - z["y"]))
        streams = {name: layer.path @ streams[name] + layer.path_bias + layer.outer @ a[name] for name in names}
    carried = readout[1]
    for layer, slope in zip(reversed(terms), reversed(slopes)):
        carried = carried @ layer.path + (carried @ layer.outer * slope) @ layer.inner
    found = duat.secant(lambda x: model.output(x)[1])(at["x"], at["y"])
    assert found.completeness.verdict == "holds"
    close(found.multiplier, (carried @ stem).astype(dtype))


def test_the_parameters_of_a_convolution_dont_move_with_the_image():
    model = network()
    first, second = (duat.unroll(model.output, image(ROWS, COLUMNS, 1, key=key)) for key in (0, 1))
    assert not first.dynamics.held
    for j in (1, 2):
        for carried in ("inner_map", "outer_map"):
            np.testing.assert_array_equal(*(getattr(form, carried)(j).dense() for form in (first, second)))
    # All that moves is what earlier terms add to a bias: nothing in the first layer.
    np.testing.assert_array_equal(*(form.inner_bias(1) for form in (first, second)))
    assert float(jnp.abs(first.inner_bias(2) - second.inner_bias(2)).max()) > 0.01


def test_the_symbolic_block_is_read_off_the_module():
    blocks, x = [layer(), layer(key=1)], image()
    read, stream = [], x
    for block in blocks:
        read.append(Block.from_function(block, stream))
        stream = block(stream)
    assert str(read[0].written) == "x′ᵢ + O′ᵢ₊₁ tanh(K′ᵢ₊₁ x′ᵢ + c′ᵢ₊₁) + o′ᵢ₊₁"
    expected = reference.residual_term(blocks[0], ROWS, COLUMNS)
    for letter, array in (("K'", expected.inner), ("c'", expected.inner_bias)):
        close(read[0].values[letter], array)
    for letter, array in (("O'", expected.outer), ("o'", expected.path_bias)):
        close(read[0].values[letter], array)
    assert read[0].residual_terms().verified
    assert read[0].prove().verified
    assert read[0].verify(blocks, x, [block.values for block in read], read[0].functions).holds
    other = layer(key=2)
    with pytest.raises(NumbersDiffer):
        read[0].verify(other, x, read[0].values, read[0].functions)


def test_the_shipped_block_describes_the_module():
    block = layer()
    path, offset, (term,) = reference.residual_term(block, ROWS, COLUMNS)
    weights = {"R'": path, "F'[1]": term.inner, "f'[1]": term.inner_bias, "F'[2]": term.outer, "f'[2]": offset}
    assert transformer_block("convolution").verify([block, block], image(), weights, jnp.tanh).holds


@pytest.mark.slow
def test_the_module_in_one_dimension_is_a_sum_over_shifts():
    def shifted(x, letters):
        left, middle, right = (matrix(letter, CHANNELS, CHANNELS) for letter in letters)
        return matrix("L", COLUMNS, COLUMNS) * x * left + x * middle + matrix("R", COLUMNS, COLUMNS) * x * right

    def written(x):
        inside = shifted(x, "DEF") + ones(COLUMNS) * vector("f", CHANNELS).T
        return x + shifted(activation(inside), "UVZ") + ones(COLUMNS) * vector("g", CHANNELS).T

    block = layer()
    kernels = [part.kernel[1] for part in (block.input, block.output)]
    weights = {
        letter: kernel[k] for letters, kernel in zip(("DEF", "UVZ"), kernels) for k, letter in enumerate(letters)
    }
    weights |= {"f": block.input.bias[...], "g": block.output.bias[...]}
    weights |= {"L": jnp.eye(COLUMNS, k=-1), "R": jnp.eye(COLUMNS, k=1)}
    shape = (COLUMNS, CHANNELS)

    def row(x):
        return block(x[None])[0]

    assert Block(written, shape=shape, name="residual convolution").verify(row, image(*shape), weights, jnp.tanh).holds


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Convolution(0, -1, 2, "edges", rngs=None), ("'edges'", "inputs = 0", "outputs = -1", "must be odd")),
        (lambda: Convolution(1, 1, 0, "edges", stride=0, rngs=None), ("size = 0", "stride = 0 must be positive")),
        (lambda: ResidualConvolution(1, 1, "sine", rngs=None), ("'sine'", "choose one of", "relu")),
        (lambda: ResidualConvolution(1, 1, "relu", size=4, rngs=None), ("size = 4",)),
        (lambda: ResidualNetwork(1, (4,), 10, rngs=None), ("(4,)", "two widths")),
        (lambda: ResidualNetwork(1, (4, 4), 0, rngs=None), ("classes = 0",)),
        (lambda: ResidualNetwork(1, (4, 0), 2, rngs=None), ("outputs = 0",)),
        (lambda: ResidualNetwork(1, (2, 2), 2, rngs=None)(jnp.ones((3, 5, 4))), ("[3, 5, 4]", "[1, rows, columns]")),
    ],
)
def test_what_is_no_convolution_is_refused_by_name(make, words):
    with pytest.raises(duat.DuatError) as caught:
        make()
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
