"""Every table sums to the plain forward pass, by the one tolerance rule, for every block, mask, dtype and depth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions import MASKS, scan_of
from helpers import BLOCK_NAMES, close, make_input, make_stack, recorded, weights_of

import duat_jax as duat
from duat_jax.nn import ACTIVATIONS


def readout_of(stack, real=None):
    def readout(x):
        return jnp.vdot(weights_of(x.shape).astype(x.dtype), stack(x, real))

    return readout


def all_parts(parts):
    return [*jax.tree.leaves(parts.input), *parts.terms.values(), *parts.offsets.values(), parts.unmarked]


def assert_complete(parts, value):
    """The rule of the project, computed here with numpy in double precision, against the plain value."""
    flat = np.concatenate([np.asarray(part, np.float64).reshape(-1) for part in all_parts(parts)])
    eps, value = np.finfo(value.dtype).eps, float(value)
    tolerance = 4 * np.log2(np.count_nonzero(flat) + 4) * eps * np.sqrt((flat**2).sum() + value**2)
    assert abs(flat.sum() - value) <= 2 * tolerance
    assert parts.completeness.holds
    # The library's counts what cancels inside of a bias too.
    assert 0.5 < float(parts.completeness.tolerance) / tolerance < 4


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("neurons", [True, False])
@pytest.mark.parametrize("mask", [m if m == "causal" else pytest.param(m, marks=pytest.mark.slow) for m in MASKS])
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_the_table_sums_to_the_plain_pass(block, mask, neurons, dtype):
    causal, real = MASKS[mask]
    stack, x = make_stack(block, 3, causal=causal, dtype=dtype), make_input(dtype=dtype)
    readout = readout_of(stack, real)
    parts = jax.jit(lambda x: duat.decompose(readout, x, by_neuron=neurons))(x)
    assert parts.completeness.dtype == dtype
    assert parts.terms["layers.0.mlp"].shape == ((4, 10) if neurons else (4,))
    assert_complete(parts, jax.jit(readout)(x))


@pytest.mark.parametrize("depth", [1, 6, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_the_table_sums_at_every_depth(block, depth):
    stack, x = make_stack(block, depth), make_input()
    readout = readout_of(stack)
    assert_complete(jax.jit(lambda x: duat.decompose(readout, x))(x), readout(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_table_sums_for_every_activation(activation):
    stack, x = make_stack("pre-norm", 3, activation=activation), make_input()
    readout = readout_of(stack)
    assert_complete(duat.decompose(readout, x), readout(x))


@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_the_table_without_neurons_is_the_sum_over_neurons(block):
    stack, x = make_stack(block, 3), make_input()
    fine = duat.decompose(readout_of(stack), x)
    coarse = duat.decompose(readout_of(stack), x, by_neuron=False)
    for key, per_token in coarse.terms.items():
        close(per_token, fine.terms[key].sum(-1))
    close(coarse.input, fine.input)
    for key, value in coarse.offsets.items():
        close(value, fine.offsets[key])


@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_each_part_is_what_the_replayed_output_loses_without_it(block):
    """Under held parameters: set a neuron, a bias or an input token to zero and evaluate again."""
    stack, x = make_stack(block, 3), make_input()
    readout = readout_of(stack)
    parts = duat.decompose(readout, x)
    _, dynamics = recorded(readout)(x)
    replayed = jax.jit(duat.replay(readout, dynamics))
    whole = replayed(x)
    for key, (token, neuron) in {"layers.0.mlp": (1, 3), "layers.2.mlp": (2, 7)}.items():
        changed = dynamics.activations[key].at[token, neuron].set(0)
        without = duat.results.Marked({k: changed if str(k) == key else a for k, a in dynamics.activations.items()})
        close(replayed(x, without) + parts.terms[key][token, neuron], whole)
    for key, bias in dynamics.offsets.items():
        without = duat.results.Marked({**dynamics.offsets, key: jnp.zeros_like(bias)})
        close(replayed(x, None, without) + parts.offsets[key], whole)
    close(replayed(x.at[2].set(0)) + parts.input[2].sum(), whole)


def test_a_scanned_stack_has_the_table_of_a_python_loop():
    stack, x = make_stack("pre-norm", 3), make_input()
    looped = duat.decompose(lambda x: stack(x)[-1].sum(), x)
    for neurons in (True, False):
        scanned = jax.jit(
            lambda x, neurons=neurons: duat.decompose(lambda x: scan_of(stack)(x)[-1].sum(), x, by_neuron=neurons)
        )(x)
        assert scanned.completeness.holds
        close(scanned.input, looped.input)
        for i in range(3):
            expected = looped.terms[f"layers.{i}.mlp"]
            close(scanned.terms["mlp"][i], expected if neurons else expected.sum(-1))
            close(scanned.offsets["mlp.output.bias"][i], looped.offsets[f"layers.{i}.mlp.output.bias"])


@pytest.mark.parametrize("neurons", [True, False])
@pytest.mark.parametrize("scanned", [True, False])
def test_a_coefficient_is_what_one_unit_more_would_have_added(scanned, neurons):
    """Under held parameters: change the activation, and evaluate again."""
    stack, x = make_stack("pre-norm", 2), make_input()
    fn = scan_of(stack) if scanned else stack

    def readout(x):
        return fn(x)[-1, 2]

    parts, dynamics = duat.decompose(readout, x, by_neuron=neurons), recorded(readout)(x)[1]
    replayed = jax.jit(duat.replay(readout, dynamics))
    for key, coefficient in parts.coefficients.items():
        change = weights_of(dynamics.activations[key].shape, key=5)
        more = duat.results.Marked({**dynamics.activations, key: dynamics.activations[key] + change})
        expected = replayed(x, more) - replayed(x)
        if neurons:
            close(parts.terms[key], coefficient * dynamics.activations[key])
            close((coefficient * change).sum(), expected)
        else:
            close(parts.terms[key], (coefficient * dynamics.term_outputs[key]).sum(-1))


def test_decompose_under_vmap():
    stack = make_stack("post-norm", 2, causal=False)
    xs = jnp.stack([make_input(key=k) for k in range(3)])
    readout = readout_of(stack)
    parts = jax.vmap(lambda x: duat.decompose(readout, x))(xs)
    for k, x in enumerate(xs):
        alone = duat.decompose(readout, x)
        close(parts.terms["layers.1.mlp"][k], alone.terms["layers.1.mlp"])
        close(parts.completeness.sum[k], readout(x))


def test_weights_may_be_arguments_of_an_outer_jit():
    stack, x = make_stack("pre-norm", 2), make_input()
    inside = jax.jit(lambda stack, x: duat.decompose(readout_of(stack), x))(stack, x)
    close(inside.terms["layers.0.mlp"], duat.decompose(readout_of(stack), x).terms["layers.0.mlp"])


def test_a_gated_term_carries_its_gate():
    """A gated MLP, `W_d (σ(x W_g) ⊙ x W_u)`: the outer weight is dynamic."""
    gate, up, down = (jax.random.normal(jax.random.key(k), s) for k, s in enumerate([(6, 8), (6, 8), (8, 6)]))

    def fn(x):
        held = duat.hold(x @ up, "gate")
        return (x + duat.term(jax.nn.silu, x @ gate, "mlp", outer=lambda a: (a * held) @ down))[-1].sum()

    x = make_input()
    parts = duat.decompose(fn, x)
    assert parts.completeness.holds
    close(parts.terms["mlp"][-1], jax.nn.silu(x @ gate)[-1] * (x @ up)[-1] * down.sum(1))
    close(duat.decompose(fn, x, by_neuron=False).terms["mlp"], parts.terms["mlp"].sum(-1))


def test_an_argument_may_be_a_pytree():
    def fn(x):
        return (2 * x["a"] + duat.hold(jnp.exp(x["b"][0]), "gate") * x["b"][0]).sum()

    x = {"a": jnp.arange(3.0), "b": (jnp.ones(3),)}
    parts = duat.decompose(fn, x)
    close(parts.input["a"], 2 * x["a"])
    close(parts.input["b"][0], np.e * np.ones(3))


def test_constants_without_a_mark_are_found_wherever_they_come_in():
    kernels = jnp.stack([jnp.eye(6)] * 3)

    def by_a_carry(x):
        return jax.lax.scan(lambda c, w: ((c[0] @ w, c[0] * 2), c[1]), (x, jnp.ones_like(x)), kernels)[1].sum()

    def only_held(x):
        return duat.hold(jnp.tanh(x), "held").sum()

    x = make_input()
    for fn, expected in (
        (by_a_carry, float(x.size)),
        (only_held, jnp.tanh(x).sum()),
        (lambda x: jnp.float64(2.0), 2.0),
    ):
        parts = duat.decompose(fn, x)
        close(parts.unmarked, expected)
        assert parts.completeness.holds
        close(parts.completeness.sum, fn(x))


def test_whole_numbers_masks_and_keys_among_the_arguments_are_constants():
    def fn(arguments):
        x, rows, mask, key = arguments
        noise = jax.random.normal(key, x.shape)
        return jnp.where(mask[:, None], x, 0.0)[rows].sum() + (duat.hold(noise, "noise") * x).sum()

    x = make_input()
    arguments = (x, jnp.array([0, 2, 2]), jnp.array([True, False, True, True]), jax.random.key(3))
    parts = duat.decompose(fn, arguments)
    assert parts.completeness.holds
    close(parts.completeness.sum, fn(arguments))
    assert not parts.input[1].any()


def test_parts_of_lower_precision_widen_the_tolerance():
    x = make_input(dtype=jnp.float32).astype(jnp.bfloat16)
    kernel = weights_of((6, 6)).astype(jnp.bfloat16)

    def fn(x):
        return (x + duat.term(jax.nn.relu, x @ kernel, "mlp")).astype(jnp.float32).sum()

    parts = duat.decompose(fn, x)
    assert parts.completeness.within
    assert parts.completeness.tolerance > 0.01
    assert parts.completeness.verdict == "inconclusive"


def test_scalar_terms_with_an_outer_map():
    def fn(x):
        return duat.term(jnp.tanh, x[0, 0], "scalar", outer=lambda a: 3 * a)

    x = make_input()
    close(duat.decompose(fn, x, by_neuron=False).terms["scalar"], 3 * jnp.tanh(x[0, 0]))
