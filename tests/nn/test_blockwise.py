"""Attention in blocks beside the stored pattern: the same numbers, nothing of the pattern kept, lies caught."""

from functools import partial
from itertools import product
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, near, numbers
from hypothesis import given, settings
from hypothesis import strategies as st

import duat_jax as duat
from duat_jax.forms.decomposition import contributions
from duat_jax.nn import attention_mask, attention_pattern, blockwise
from duat_jax.nn.blockwise import attend, pattern


@pytest.fixture(autouse=True)
def _small_blocks():
    with mock.patch.multiple(blockwise, ROWS=6, STRIPS=2):
        yield


def stored_pattern(queries, keys, *, scale, causal, window, mask=None, cap=None, sinks=None):
    """The same by the stored pattern, zero where a query sees nothing."""
    visible = attention_mask(queries.shape[-3], causal=causal, window=window, mask=mask)
    keys = jnp.repeat(keys, queries.shape[-2] // keys.shape[-2], axis=-2)
    found = attention_pattern(queries, keys, scale, visible, cap, sinks)
    return found if visible is None else jnp.where(visible.any(-1)[..., None, :, None], found, 0)


def stored(queries, keys, values, **how):
    values = jnp.repeat(values, queries.shape[-2] // values.shape[-2], axis=-2)
    return jnp.einsum("...hqk,...khf->...qhf", stored_pattern(queries, keys, **how), values)


def drawn(tokens, shared=2, group=1, features=3, value_features=3, texts=()):
    """Queries, keys, values, and a read-out of what is mixed."""
    shapes = [
        (shared * group, features),
        (shared, features),
        (shared, value_features),
        (shared * group, value_features),
    ]
    return [jnp.array(3 * numbers(*texts, tokens, *shape, key=i)) for i, shape in enumerate(shapes)]


def mixed_and_pulled_back(queries, keys, values, readout, **how):
    """What attention makes of the values, and what of a read-out each of them contributes."""
    recording = duat.record(lambda values: attend(queries, keys, values, **how))(values)
    return recording.value, contributions(recording, readout).input


def expected(queries, keys, values, readout, **how):
    """The same in NumPy, by the stored pattern."""
    found = np.asarray(jax.jit(partial(stored_pattern, **how))(queries, keys))
    group = queries.shape[-2] // keys.shape[-2]
    mixed = np.einsum("...hqk,...khf->...qhf", found, np.repeat(values, group, axis=-2))
    pulled = np.einsum("...hqk,...qhf->...khf", found, readout)
    return mixed, pulled.reshape(*keys.shape[:-1], group, -1).sum(-2) * values


def agree(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        close(ours, theirs)


EVERYTHING = {"mask": jnp.arange(13) % 5 != 3, "cap": 2.0, "sinks": jnp.array(numbers(4, key=9))}
SWITCHES = [
    pytest.param({"scale": 0.7, "causal": causal, "window": window} | extra, id=f"{causal}-{window}-{len(extra)}")
    for causal, window, extra in [(True, None, {}), *product((True, False), (None, 4), [EVERYTHING])]
]
"""Causal or not, with a window or without, with a mask, cap and sinks."""


@pytest.mark.parametrize("how", SWITCHES)
def test_values_and_transpose_are_those_of_the_stored_pattern(how):
    operands = drawn(13, group=2)
    agree(jax.jit(partial(mixed_and_pulled_back, **how))(*operands), expected(*operands, **how))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_shape_has_the_numbers_of_the_stored_pattern(data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    tokens, shared, group = draw(1, 30), draw(1, 3), draw(1, 4)
    operands = drawn(tokens, shared, group, draw(1, 3), draw(1, 3), (2,) * draw(0, 1))
    real = jnp.array(data.draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens)))
    how = {
        "scale": 0.5,
        "causal": data.draw(st.booleans()),
        "window": data.draw(st.none() | st.integers(1, tokens + 1)),
        "mask": jnp.broadcast_to(real, operands[0].shape[:-2]) if draw(0, 1) else None,
        "cap": data.draw(st.sampled_from([None, 2.0])),
        "sinks": jnp.array(numbers(shared * group, key=9)) if draw(0, 1) else None,
    }
    with mock.patch.multiple(blockwise, ROWS=draw(1, 12), STRIPS=draw(1, 5)):
        agree(jax.jit(partial(mixed_and_pulled_back, **how))(*operands), expected(*operands, **how))


def test_texts_are_mapped_each_with_its_own_mask():
    places = jnp.arange(9)
    # The queries before the second text's first real token see nothing.
    *operands, mask = *drawn(9, texts=(3,)), jnp.stack([places < 9, places > 3, places < 2])

    def run(queries, keys, values, readout, mask):
        return mixed_and_pulled_back(queries, keys, values, readout, scale=1.0, causal=True, window=None, mask=mask)

    wanted = expected(*operands, scale=1.0, causal=True, window=None, mask=mask)
    for found in jax.jit(lambda *operands: (jax.vmap(run)(*operands), run(*operands)))(*operands, mask):
        agree(found, wanted)


def test_training_sees_the_derivative_of_the_stored_pattern():
    how = {"scale": 0.7, "causal": True, "window": 4, "cap": 2.0, "mask": jnp.arange(13) > 2}
    *operands, readout = drawn(13, group=2)

    def gradient(attention):
        return jax.jit(jax.grad(lambda *x: (attention(*x[:3], sinks=x[3], **how) * readout).sum(), (0, 1, 2, 3)))

    ours, theirs = (gradient(a)(*operands, jnp.array(numbers(4, key=9))) for a in (attend, stored))
    for one, other in zip(ours, theirs, strict=True):
        assert np.any(other)
        close(one, other)


def test_half_precision_stays_half_precision():
    operands = [x.astype(jnp.bfloat16) / 3 for x in drawn(13)[:3]]
    ours, theirs = (jax.jit(partial(a, scale=0.7, causal=True, window=None))(*operands) for a in (attend, stored))
    assert ours.dtype == jnp.bfloat16
    near(ours.astype(jnp.float32), theirs.astype(jnp.float32), within=0.03)


def test_the_pattern_is_there_for_who_asks():
    queries, keys, _, _ = drawn(13, group=2)
    how = {"scale": 0.7, "causal": True, "window": None} | EVERYTHING
    ours, theirs = (jax.jit(partial(of, **how))(queries, keys) for of in (pattern, stored_pattern))
    close(ours, theirs)


def test_columns_that_no_query_of_a_block_sees_are_skipped():
    queries, keys, values, _ = drawn(18)
    # What is multiplied by zero instead of skipped spoils the sum.
    causal = jax.jit(partial(attend, scale=1.0, causal=True, window=None))(queries, keys, values.at[6:].set(jnp.nan))
    window = jax.jit(partial(attend, scale=1.0, causal=False, window=3))(queries, keys, values.at[10:].set(jnp.nan))
    for found in (causal, window):
        assert np.isfinite(found[:6]).all() and np.isnan(found[6:]).all()


WEIGHTS = [numbers(3, 6, key=i) for i in range(3)]


def attention_layer(x, attention=attend):
    """Attention of two heads whose queries and keys are made of what flows, and a term."""
    queries, keys, values = ((x @ w).reshape(-1, 2, 3) for w in WEIGHTS)
    mixed = attention(queries, keys, values, scale=0.5, causal=True, window=None).sum(1)
    return duat.stream(x + mixed + duat.term(jax.nn.gelu, mixed, "after"), "layer")


def test_queries_and_keys_are_all_that_is_held():
    recording = duat.record(attention_layer)(jnp.array(numbers(13, 3)))
    assert [str(key) for key in recording.dynamics.held] == ["attention.queries", "attention.keys"]
    assert all(held.shape == (13, 2, 3) for held in recording.dynamics.held.values())


def test_contributions_are_those_of_the_stored_pattern():
    x = jnp.array(numbers(13, 3))
    found = [
        jax.jit(lambda x, a=attention: duat.decompose(lambda x: attention_layer(x, a).sum(), x))(x)
        for attention in (attend, stored)
    ]
    assert found[0].completeness.verdict == "holds"
    for ours, theirs in zip(jax.tree.leaves(found[0][:4]), jax.tree.leaves(found[1][:4]), strict=True):
        close(ours, theirs)


def test_another_input_meets_the_pattern_of_the_recorded_one():
    @jax.jit
    def replayed(x, other):
        found = []
        for attention in (attend, stored):
            fn = partial(attention_layer, attention=attention)
            found.append(duat.replay(fn, duat.record(fn)(x).dynamics)(other))
        return found, fn(other)

    (ours, theirs), own = replayed(jnp.array(numbers(13, 3)), jnp.array(numbers(13, 3, key=5)))
    close(ours, theirs)
    assert np.abs(ours - own).max() > 0.1


@pytest.mark.parametrize("name", ["attention.queries", "attention.keys"])
def test_flowing_queries_or_keys_that_are_not_held_are_refused(name, monkeypatch):
    monkeypatch.setattr(blockwise, "hold", lambda x, called: x if called == name else duat.hold(x, called))
    with pytest.raises(
        duat.NotAffine, match=r"py:\d+ \(attention_layer\): reduce_max isn't linear .*hold\(pattern, name\)"
    ):
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
            return carry + jnp.tanh(row).sum() * gate * x, carry - duat.offset(weights[0, 0], "bias")

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
    """Bytes that the table of a layer needs besides weights and results."""
    x = jax.ShapeDtypeStruct((tokens, 3), jnp.float64)

    def table(x):
        return duat.decompose(lambda x: attention_layer(x, attention).sum(), x)

    return jax.jit(table).lower(x).compile().memory_analysis().temp_size_in_bytes


def test_memory_grows_in_proportion_to_tokens(optimised, monkeypatch):
    monkeypatch.setattr(blockwise, "ROWS", 16)
    short, long = (temporaries(attend, tokens) for tokens in (512, 2048))
    assert long < 4.4 * short
    assert temporaries(stored, 2048) > 20 * long


@pytest.mark.parametrize("mix", [attend, stored])
def test_a_query_whose_scores_all_overflow_reads_nothing_that_is_hidden_from_it(mix):
    queries, keys, values, _ = drawn(tokens=8)
    queries = jnp.abs(queries).at[1].multiply(1e200)
    mixed = mix(queries, -1e200 * jnp.abs(keys), values, scale=1.0, causal=True, window=None)
    assert np.isnan(mixed[1]).all()
    assert np.isfinite(mixed[0]).all()
