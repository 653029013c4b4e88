"""The unrolled form's parameters in parallel over the layers, against the serial recursions and record and replay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, make_input, make_stack, numbers

import duat_jax as duat
from benchmarks import parallel
from benchmarks.parallel_parameters import stack_terms, unroll_in_parallel
from duat_jax.forms.residual_term import ResidualTerm, Term
from duat_jax.nn import ACTIVATIONS
from duat_jax.reference.blocks import residual_terms
from duat_jax.reference.recursions import unroll_terms
from duat_jax.verification.routes import held_by_layer

FEATURES, NEURONS = 4, 3


def random_terms(depth, key=0):
    """Random layers near the identity, so that products of 64 of them neither vanish nor explode."""
    shapes = (FEATURES, FEATURES), (FEATURES,), (NEURONS, FEATURES), (NEURONS,), (FEATURES, NEURONS)
    draws = [numbers(depth, *shape, key=key + k) / 8 for k, shape in enumerate(shapes)]
    draws[0] += np.eye(FEATURES)
    layers = ([jnp.asarray(part[i]) for part in draws] for i in range(depth))
    return [ResidualTerm(path, path_bias, (Term(*inside),)) for path, path_bias, *inside in layers]


def agree(found, forms):
    """Every parameter in parallel is that of the serial recursion at every depth, and its terms at the last."""
    depth = len(forms) - 1
    for i, form in enumerate(forms):
        close(found.input[i], form.input, depth)
        close(found.bias[i], form.bias, depth)
        close(found.term_sum[i], form.term_sum(), depth)
    for j, term in enumerate(forms[-1].terms):
        close(found.inner[j], term.inner, depth)
        close(found.inner_bias[j], term.inner_bias, depth)
        close(found.outer[j], term.outer, depth)


@pytest.mark.parametrize("depth", [3, *(pytest.param(depth, marks=pytest.mark.slow) for depth in (1, 8, 64))])
def test_the_parallel_parameters_are_those_of_the_serial_recursion(depth):
    terms, x0 = random_terms(depth), jnp.asarray(numbers(FEATURES, key=9))
    forms = unroll_terms(terms, jnp.tanh, x0)
    activations = jnp.stack([term.activation for term in forms[-1].terms])
    agree(unroll_in_parallel(stack_terms(terms), activations), forms)


@pytest.mark.slow
@pytest.mark.parametrize(("block", "depth"), [("pre-norm", 3), ("post-norm", 3), ("parallel", 2), ("pre-norm", 64)])
def test_a_recorded_stack_is_unrolled_in_parallel(block, depth):
    stack, x = make_stack(block, depth, activation="sigmoid"), make_input(2)
    form = duat.unroll(stack, x)
    terms = residual_terms(stack, held_by_layer(form.dynamics, depth))
    recorded = jnp.stack([activation.ravel() for activation in form.dynamics.activations.values()])
    found = unroll_in_parallel(stack_terms(terms), recorded)
    agree(found, unroll_terms(terms, ACTIVATIONS["sigmoid"], x.ravel()))
    close(found.input[-1] @ x.ravel() + found.bias[-1] + found.term_sum[-1], stack(x), depth)
    close(found.outer[0], form.outer_map(1).dense(), depth)
    close(found.inner_bias[-1], form.inner_bias(depth), depth)


@pytest.mark.slow
def test_only_what_the_forward_pass_recorded_gives_itself_again():
    terms, x0 = random_terms(4), jnp.asarray(numbers(FEATURES, key=9))
    recorded = jnp.stack([term.activation for term in unroll_terms(terms, jnp.tanh, x0)[-1].terms])

    def again(activations):
        found = unroll_in_parallel(stack_terms(terms), activations)
        return jnp.tanh(found.inner @ x0 + found.inner_bias)

    close(again(recorded), recorded)
    # Layer j has its own activations right once those of all earlier layers are: every sweep mends one layer more.
    guess = jnp.zeros_like(recorded)
    for right in range(1, 5):
        guess = again(guess)
        close(guess[:right], recorded[:right])
        assert right == 4 or float(jnp.abs(guess[right] - recorded[right]).max()) > 1e-9


@pytest.mark.slow
def test_it_goes_through_jit_vmap_and_grad():
    layers = stack_terms(random_terms(3))
    many = jnp.asarray(numbers(2, 3, NEURONS, key=5))
    together = jax.jit(jax.vmap(unroll_in_parallel, in_axes=(None, 0)))(layers, many)
    close(together.inner_bias[1], unroll_in_parallel(layers, many[1]).inner_bias)
    moved = jax.jacobian(lambda a: unroll_in_parallel(layers, a).term_sum[-1])(many[0])
    close(moved.transpose(1, 0, 2), unroll_in_parallel(layers, many[0]).outer)


@pytest.mark.slow
def test_what_is_measured_beside_it_gives_the_same():
    layers, x0 = parallel.random_layers(FEATURES, jnp.float64)
    activations = parallel.forward(layers, x0)
    found = unroll_in_parallel(layers, activations)
    for other in (parallel.one_by_one(layers, activations), parallel.recursion(layers, x0)):
        for a, b in zip(found, other):
            close(a, b, parallel.DEPTH)
        assert max(parallel.largest_errors(other, found).values()) < 1e-12
    moved = found._replace(bias=found.bias + 0.5 * jnp.abs(found.bias).max())
    assert parallel.largest_errors(moved, found)["bias"] == pytest.approx(0.5)
    # Of each layer: W P, two of its own with twice as many neurons, W after; and six of a matrix and a vector.
    assert parallel.operations(16)["one by one"] == parallel.DEPTH * (6 + 6 / 16)


def layer_of(features, before, neurons=NEURONS):
    """A layer of zeros, from a stream of one size to one of another."""
    inside = Term(jnp.zeros((neurons, before)), jnp.zeros(neurons), jnp.zeros((features, neurons)))
    return ResidualTerm(jnp.zeros((features, before)), jnp.zeros(features), (inside,))


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (list, ("no layers",)),
        (lambda: [ResidualTerm(jnp.eye(2), jnp.zeros(2), ())], ("layer 1 has 0 terms",)),
        (lambda: [layer_of(4, 4)] * 2 + [ResidualTerm(jnp.eye(4), jnp.zeros(4), ())], ("layer 3 has 0 terms",)),
        (lambda: [layer_of(4, 4), layer_of(4, 4, 9)], ("layer 2 is of shapes", "(9, 4)", "(3, 4)")),
        (lambda: [layer_of(4, 16)], ("layer 1 changes the stream's size from 16 to 4",)),
    ],
)
def test_layers_that_dont_fit_together_are_named(terms, words):
    with pytest.raises(duat.DuatError) as caught:
        stack_terms(terms())
    assert all(word in str(caught.value) for word in words), caught.value


def test_activations_of_another_shape_are_refused():
    with pytest.raises(duat.DuatError, match=r"shape \(2, 3\), but the layers' neurons of \(3, 3\)"):
        unroll_in_parallel(stack_terms([layer_of(4, 4)] * 3), jnp.zeros((2, 3)))
