"""Recording returns what a plain pass computes; replaying is affine and equals it; both compose as `jax.grad` does."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from functions import MASKS, awkward, scan_of
from helpers import BLOCK_NAMES, close, far, make_input, make_stack, recorded

import duat_jax as duat


def maybe_jit(fn, jitted):
    return jax.jit(fn) if jitted else fn


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_record_is_the_layer_by_layer_pass(block, mask, jitted):
    causal, real = MASKS[mask]
    stack, x = make_stack(block, 3, causal=causal), make_input()
    value, dynamics = maybe_jit(recorded(lambda x: stack(x, real)), jitted)(x)

    stream = x
    for i, layer in enumerate(stack.blocks):
        close(dynamics.streams[f"layer[{i}]"], stream)
        stream = layer(stream, real)
    close(value, stream)
    for i in range(3):
        pattern = dynamics.held[f"layers.{i}.attention.pattern"]
        chex.assert_shape(pattern, (2, 4, 4))
        close(pattern.sum(-1), np.ones((2, 4)))
        if causal and real is None:
            assert not np.triu(np.asarray(pattern), 1).any()
        if mask == "padding":
            assert not np.asarray(pattern)[:, :, 3].any()


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_replay_equals_the_plain_pass_and_is_affine(block, mask, jitted):
    causal, real = MASKS[mask]
    stack, x, y = make_stack(block, 3, causal=causal), make_input(), make_input(key=7)

    def fn(x):
        return stack(x, real)

    _, dynamics = recorded(fn)(x)
    _, other = recorded(fn)(y)
    replayed = maybe_jit(duat.replay(fn, dynamics), jitted)
    close(replayed(x), fn(x))

    def at(x, dynamics):
        return replayed(x, dynamics.activations, dynamics.offsets)

    between = jax.tree.map(lambda a, b: 0.3 * a + 0.7 * b, (x, dynamics), (y, other))
    close(at(*between), 0.3 * at(x, dynamics) + 0.7 * at(y, other), layers=9)
    assert far(at(y, other), fn(y)), "replaying another input under these dynamics is a counterfactual"


def test_record_and_replay_under_vmap():
    stack = make_stack("pre-norm", 2)
    xs = jnp.stack([make_input(key=k) for k in range(3)])
    values, dynamics = jax.vmap(recorded(stack))(xs)
    replayed = jax.vmap(lambda dynamics, x: duat.replay(stack, dynamics)(x))(dynamics, xs)
    for k, x in enumerate(xs):
        value, alone = recorded(stack)(x)
        close(values[k], value)
        close(replayed[k], stack(x))
        chex.assert_trees_all_close(jax.tree.map(lambda leaf, k=k: leaf[k], dynamics), alone, atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"remat": True}, {"unroll": 2}])
@pytest.mark.parametrize("block", BLOCK_NAMES)
def test_a_scanned_stack_records_what_a_python_loop_records(block, options):
    stack, x = make_stack(block, 3), make_input()
    value, dynamics = jax.jit(recorded(scan_of(stack, **options)))(x)
    _, looped = recorded(stack)(x)
    close(value, stack(x))
    for kind in ("held", "activations", "pre_activations", "offsets"):
        for name, stacked in getattr(dynamics, kind).items():
            for i in range(3):
                close(stacked[i], getattr(looped, kind)[f"layers.{i}.{name}"])
    close(duat.replay(scan_of(stack, **options), dynamics)(x), stack(x))


def test_a_scan_in_reverse():
    stack, x = make_stack("parallel", 3), make_input()
    fn = scan_of(stack, reverse=True)
    value, dynamics = recorded(fn)(x)
    close(duat.replay(fn, dynamics)(x), value)
    parts = duat.decompose(lambda x: fn(x).sum(), x)
    assert parts.completeness.holds


@pytest.mark.parametrize("jitted", [False, True])
def test_scan_remat_custom_jvp_with_a_counter_and_a_shared_bias(jitted):
    x = make_input()
    value, dynamics = maybe_jit(recorded(awkward), jitted)(x)
    close(value, awkward(x))
    assert dynamics.held["gate"].shape == (4,)
    close(duat.replay(awkward, dynamics)(x), value, layers=20)
    parts = maybe_jit(lambda x: duat.decompose(awkward, x), jitted)(x)
    assert parts.completeness.holds
    close(parts.completeness.value, value)
    # The transposed pass against reverse-mode differentiation of the replayed function.
    replayed = duat.replay(awkward, dynamics)
    by_autodiff = jax.grad(replayed, argnums=(0, 1, 2))(x, dynamics.activations, dynamics.offsets)
    close(parts.input, by_autodiff[0] * x, layers=20)
    close(parts.terms["mlp"], by_autodiff[1]["mlp"] * dynamics.activations["mlp"], layers=20)
    close(parts.offsets["shared"], (by_autodiff[2]["shared"] * dynamics.offsets["shared"]).sum(), layers=20)


def test_marks_inside_custom_vjp_and_nested_jit_and_nested_scan():
    @jax.custom_vjp
    def gated(x):
        return duat.hold(jnp.tanh(x), "gate") * x

    gated.defvjp(lambda x: (gated(x), x), lambda x, u: (u,))

    def fn(x):
        def outer(x, _):
            return jax.lax.scan(lambda x, _: (jax.jit(gated)(x) + 0.1, None), x, None, length=2)[0], None

        return jax.lax.scan(outer, x, None, length=3)[0].sum()

    x = make_input()
    value, dynamics = recorded(fn)(x)
    assert dynamics.held["gate"].shape == (3, 2, 4, 6)
    close(duat.replay(fn, dynamics)(x), value)


def test_a_record_can_be_differentiated():
    def fn(x):
        return (duat.hold(jnp.exp(x), "gate") * x).sum()

    x = make_input()
    close(jax.grad(lambda x: recorded(fn)(x)[0])(x), jax.grad(fn)(x))


def test_a_carry_that_is_needed_but_not_read_keeps_its_first_value():
    def fn(x):
        kernels = jnp.stack([jnp.eye(6)] * 3)
        return jax.lax.scan(lambda c, w: ((2 * (c[0] @ w), c[0]), None), (x, 2 * x), kernels)[0][1].sum()

    x = make_input()
    value, _ = recorded(fn)(x)
    close(value, fn(x))
    close(duat.decompose(fn, x).input, np.full(x.shape, 4.0) * x)


def test_a_term_inside_another_ones_outer_map_of_the_same_name_is_an_error():
    def fn(x):
        return duat.term(jnp.tanh, x, "a", outer=lambda a: duat.term(jnp.tanh, a, "a", outer=lambda b: b))

    with pytest.raises(duat.UnsupportedProgram, match="'a' are nested"):
        duat.record(fn)(make_input())


def test_a_bias_of_whole_numbers_is_an_error():
    with pytest.raises(duat.DuatError, match="floating-point"):
        duat.offset(jnp.arange(3), "bias")


class Scaled(nnx.Module):
    """A module whose only weight is a scale."""

    def __init__(self):
        self.scale = nnx.Param(jnp.ones(3))

    def __call__(self, x):
        """Scale, and add a term."""
        return self.scale[...] * x + duat.term(jnp.tanh, self.scale[...] * x, "term")


def test_a_weight_that_has_moved_since_the_last_recording_is_seen():
    module, x = Scaled(), jnp.arange(3.0)
    close(duat.record(module)(x).value, module(x))
    module.scale[...] = jnp.full(3, 2.0)
    recording = duat.record(module)(x)
    close(recording.value, module(x))
    close(duat.unroll(module, x).input_map()(x), 2 * x)
    close(duat.replay(module, recording.dynamics)(x), module(x))
