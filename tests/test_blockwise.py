"""Attention in blocks beside the stored pattern: the same numbers, nothing of the pattern kept, lies caught."""

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, numbers
from hypothesis import given, settings
from hypothesis import strategies as st

import duat_jax as duat
from duat_jax.forms.decomposition import contributions
from duat_jax.nn import attention_mask, attention_pattern, blockwise
from duat_jax.nn.blockwise import attend, pattern


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(blockwise, "ROWS", 6)
    monkeypatch.setattr(blockwise, "STRIPS", 3)


def stored_pattern(queries, keys, *, scale, causal, window, padding=None, cap=None, sinks=None):
    """The same by the stored pattern, zero where a query sees nothing."""
    mask = attention_mask(queries.shape[-3], causal=causal, window=window, padding=padding)
    keys = jnp.repeat(keys, queries.shape[-2] // keys.shape[-2], axis=-2)
    found = attention_pattern(queries, keys, scale, mask, cap, sinks)
    return found if mask is None else jnp.where(mask.any(-1)[..., None, :, None], found, 0)


def stored(queries, keys, values, **how):
    values = jnp.repeat(values, queries.shape[-2] // values.shape[-2], axis=-2)
    return jnp.einsum("...hqk,...khf->...qhf", stored_pattern(queries, keys, **how), values)


def drawn(tokens, shared=2, group=1, features=3, value_features=3, texts=()):
    """Queries, keys, values, and a read-out of what is mixed."""
    shapes = [(shared * group, features), (shared, features), (shared, value_features), (shared * group, value_features)]
    return [jnp.array(3 * numbers(*texts, tokens, *shape, key=i)) for i, shape in enumerate(shapes)]


def held_input(attention, queries, keys, values, readout, **how):
    """The mixed values, and what a read-out of them pulls back to the values, with everything marked held."""
    recording = duat.record(lambda values: attention(queries, keys, values, **how))(values)
    return recording.value, contributions(recording, readout).input


SWITCHES = [
    {"scale": 0.7, "causal": causal, "window": window} | extra
    for causal, window, extra in product(
        (True, False),
        (None, 1, 4),
        (
            {},
            {
                "padding": jnp.arange(13) % 5 != 3,
                "cap": 2.0,
                "sinks": jnp.array(numbers(4, key=9)),
            },
        ),
    )
]


@pytest.mark.parametrize("how", SWITCHES, ids=lambda how: "-".join(f"{k}={v}" for k, v in list(how.items())[1:4])[:40])
def test_values_and_transpose_are_those_of_the_stored_pattern(how):
    operands = drawn(13, group=2)
    for ours, theirs in zip(
        *(jax.jit(partial(held_input, attention, **how))(*operands) for attention in (attend, stored)), strict=True
    ):
        close(ours, theirs)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_shape_has_the_numbers_of_the_stored_pattern(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    tokens, shared, group = draw(1, 30), draw(1, 3), draw(1, 4)
    operands = drawn(tokens, shared, group, draw(1, 3), draw(1, 3), (2,) * draw(0, 1))
    padding = jnp.array(data.draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens)))
    how = {
        "scale": 0.5,
        "causal": data.draw(st.booleans()),
        "window": data.draw(st.none() | st.integers(1, tokens + 1)),
        "padding": data.draw(st.sampled_from([None, jnp.broadcast_to(padding, operands[0].shape[:-2])])),
    }
    blockwise.ROWS, blockwise.STRIPS = draw(1, 12), draw(1, 5)
    for ours, theirs in zip(held_input(attend, *operands, **how), held_input(stored, *operands, **how), strict=True):
        close(ours, theirs)


def test_texts_are_mapped_each_with_its_own_padding():
    operands = drawn(9, texts=(3,))
    padding = jnp.arange(9) < jnp.array([9, 5, 2])[:, None]

    def one(queries, keys, values, readout, padding):
        return held_input(attend, queries, keys, values, readout, scale=1.0, causal=False, window=None, padding=padding)

    mapped = jax.jit(jax.vmap(one))(*operands, padding)
    together = jax.jit(one)(*operands, padding)
    for text in range(3):
        expected = held_input(
            stored, *(x[text] for x in operands), scale=1.0, causal=False, window=None, padding=padding[text]
        )
        for ours, theirs in zip(mapped, expected, strict=True):
            close(ours[text], theirs)
        for ours, theirs in zip(together, expected, strict=True):
            close(ours[text], theirs)


def test_training_sees_the_derivative_of_the_stored_pattern():
    how = {"scale": 0.7, "causal": True, "window": 4, "cap": 2.0, "padding": jnp.arange(13) > 2}
    *operands, readout = drawn(13, group=2)

    def gradient(attention):
        return jax.jit(jax.grad(lambda *x: (attention(*x[:3], sinks=x[3], **how) * readout).sum(), (0, 1, 2, 3)))

    ours, theirs = (gradient(a)(*operands, jnp.array(numbers(4, key=9))) for a in (attend, stored))
    for one, other in zip(ours, theirs, strict=True):
        assert np.any(other)
        close(one, other)


def test_half_precision_stays_half_precision():
    operands = [x.astype(jnp.bfloat16) / 3 for x in drawn(13)[:3]]
    ours, theirs = (a(*operands, scale=0.7, causal=True, window=None) for a in (attend, stored))
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(jnp.float32), theirs.astype(jnp.float32), atol=0.03)


@pytest.mark.parametrize("how", SWITCHES[1::4], ids=lambda how: f"causal={how['causal']}-window={how['window']}")
def test_the_pattern_is_there_for_who_asks(how):
    queries, keys, _, _ = drawn(13, group=2)
    close(pattern(queries, keys, **how), stored_pattern(queries, keys, **how))


def test_columns_that_no_query_of_a_block_sees_are_skipped():
    queries, keys, values, _ = drawn(18)
    # What is multiplied by zero instead of skipped spoils the sum.
    causal = attend(queries, keys, values.at[6:].set(jnp.nan), scale=1.0, causal=True, window=None)
    window = attend(queries, keys, values.at[8:].set(jnp.nan), scale=1.0, causal=False, window=3)
    assert np.isfinite(causal[:6]).all() and np.isnan(causal[6:]).all()
    assert np.isfinite(window[:6]).all() and np.isnan(window[8:]).all()


WEIGHTS = [numbers(3, 6, key=i) for i in range(3)]


def attention_layer(x, attention=attend, squared=False):
    """Attention of two heads whose queries and keys are made of what flows, with a residual stream and a term."""
    queries, keys, values = ((x @ w).reshape(-1, 2, 3) for w in WEIGHTS)
    mixed = attention(queries, keys, values**2 if squared else values, scale=0.5, causal=True, window=None)
    return duat.stream(x + duat.term(jax.nn.gelu, mixed.sum(1), "after"), "layer")


def test_queries_and_keys_are_all_that_is_held():
    recording = duat.record(attention_layer)(jnp.array(numbers(13, 3)))
    assert [str(key) for key in recording.dynamics.held] == ["attention.queries", "attention.keys"]
    assert all(held.shape == (13, 2, 3) for held in recording.dynamics.held.values())


def test_contributions_and_replay_are_those_of_the_stored_pattern():
    x = jnp.array(numbers(13, 3))
    found = [
        jax.jit(lambda x, a=attention: duat.decompose(lambda x: attention_layer(attention_layer(x, a), a).sum(), x))(x)
        for attention in (attend, stored)
    ]
    assert found[0].completeness.verdict == "holds"
    for ours, theirs in zip(jax.tree.leaves(found[0][:4]), jax.tree.leaves(found[1][:4]), strict=True):
        close(ours, theirs)
    dynamics = duat.record(attention_layer)(x).dynamics
    close(duat.replay(attention_layer, dynamics)(x), attention_layer(x))


def test_another_input_meets_the_pattern_of_the_recorded_one():
    x, other = jnp.array(numbers(13, 3)), jnp.array(numbers(13, 3, key=5))
    replayed = [
        duat.replay(fn := partial(attention_layer, attention=a), duat.record(fn)(x).dynamics) for a in (attend, stored)
    ]
    activations = duat.record(attention_layer)(other).dynamics.activations
    close(*(fn(other, activations) for fn in replayed))


@pytest.mark.parametrize("name", ["attention.queries", "attention.keys"])
def test_flowing_queries_or_keys_that_are_not_held_are_refused(name, monkeypatch):
    monkeypatch.setattr(blockwise, "hold", lambda x, called: x if called == name else duat.hold(x, called))
    with pytest.raises(duat.NotAffine, match=r"exp isn't linear .* hold\(pattern, name\)"):
        duat.decompose(lambda x: attention_layer(x).sum(), jnp.array(numbers(13, 3)))


def test_a_body_that_is_not_linear_in_the_values_is_refused(monkeypatch):
    mix = blockwise._mix
    monkeypatch.setattr(blockwise, "_mix", lambda queries, keys, values, *rest: mix(queries, keys, values**2, *rest))
    with pytest.raises(duat.NotAffine, match=r"test_blockwise\.py.*(integer_pow|square) isn't linear"):
        duat.decompose(lambda x: attention_layer(x).sum(), jnp.array(numbers(13, 3)))


def checkpointed(x, how):
    """A loop and a term inside, held things outside and inside, and marks that are read."""
    weights = jnp.array(WEIGHTS[0])
    gate = duat.hold(jnp.exp(x), "gate")

    def body(x):
        def step(carry, row):
            return carry + jnp.tanh(row).sum() * gate * x, carry * duat.offset(weights[0, 0], "bias")

        carry, stacked = jax.lax.scan(step, jnp.zeros_like(x), weights)
        return duat.term(jax.nn.gelu, carry, "inside") + stacked.sum(0)

    y = duat.stream(how(body)(x), "layer")
    return (how(body)(y) * 2.0).sum()


def test_a_checkpoint_changes_no_number():
    x = jnp.array(numbers(4))
    ours, theirs = (
        jax.jit(lambda x, how=how: duat.decompose(partial(checkpointed, how=how), x))(x)
        for how in (jax.checkpoint, lambda body: body)
    )
    assert ours.completeness.verdict == "holds"
    for one, other in zip(jax.tree.leaves(ours[:4]), jax.tree.leaves(theirs[:4]), strict=True):
        close(one, other)


def temporaries(attention, tokens):
    """Bytes that two layers' table needs besides weights and results."""
    x = jax.ShapeDtypeStruct((tokens, 3), jnp.float32)

    def table(x):
        return duat.decompose(lambda x: attention_layer(attention_layer(x, attention), attention).sum(), x)

    return jax.jit(table).lower(x).compile().memory_analysis().temp_size_in_bytes


def test_memory_grows_in_proportion_to_tokens(optimised, monkeypatch):
    monkeypatch.setattr(blockwise, "ROWS", 16)
    short, long = (temporaries(attend, tokens) for tokens in (512, 2048))
    assert long < 4.4 * short
    assert temporaries(stored, 2048) > 20 * long
