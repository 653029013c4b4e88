"""Every part of a block and of a model against an independent computation."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, make_input, near, numbers, weights_of

import duat_jax as duat
from duat_jax.forms.affine_form import GATE_RULES
from duat_jax.nn import (
    ACTIVATIONS,
    Attention,
    Experts,
    GatedMLP,
    LayerNorm,
    RMSNorm,
    Rotary,
    Stretched,
    Switched,
    attention_mask,
    attention_pattern,
    rotary_frequencies,
    soft_cap,
)
from duat_jax.nn.pattern import sees
from duat_jax.verification.networks import randomised


def linear(layer, x):
    y = x @ np.asarray(layer.kernel[...])
    return y if layer.bias is None else y + np.asarray(layer.bias[...])


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(bias):
    norm, x = randomised(LayerNorm(6, "n", epsilon=1e-3, bias=bias, dtype=jnp.float64)), numbers(2, 4, 6)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * np.asarray(norm.scale[...])
    close(norm(jnp.asarray(x)), expected + (np.asarray(norm.bias[...]) if bias else 0))


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm(offset):
    fresh = RMSNorm(6, "n", epsilon=1e-3, weight_offset=offset, dtype=jnp.float64)
    x = numbers(2, 4, 6)
    expected = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    close(fresh(jnp.asarray(x)), expected)
    norm = randomised(fresh)
    close(norm(jnp.asarray(x)), expected * (offset + np.asarray(norm.scale[...])))


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("turned", [2, 4, 6])
def test_rotary_is_a_product_with_complex_phases(interleaved, turned):
    x = numbers(2, 5, 3, 6)
    pairs = turned // 2
    pick = [(2 * k, 2 * k + 1) if interleaved else (k, k + pairs) for k in range(pairs)]
    expected = x.copy()
    for k, (a, b) in enumerate(pick):
        phase = np.exp(1j * np.arange(5) * 100.0 ** (-2 * k / turned))[:, None]
        z = (x[..., a] + 1j * x[..., b]) * phase
        expected[..., a], expected[..., b] = z.real, z.imag
    close(Rotary(rotary_frequencies(turned, 100.0), interleaved)(jnp.asarray(x)), expected)


def test_rotary_scores_depend_on_the_distance_alone():
    rotary = Rotary(rotary_frequencies(6))
    q, k = (jnp.broadcast_to(jnp.asarray(numbers(6, key=i)), (7, 1, 6)) for i in (0, 1))
    scores = jnp.einsum("qhd,khd->qk", rotary(q), rotary(k))
    for distance in range(-6, 7):
        diagonal = jnp.diagonal(scores, distance)
        close(diagonal, jnp.full_like(diagonal, diagonal[0]))


LONGER = {
    "stretched": (Stretched(4, 2.0, 6), lambda k, n: 100.0 ** (-2 * k / 6) * (2.0 * max(n, 4) / 4 - 1) ** (-2 * k / 4)),
    "switched": (Switched(4, (0.5, 0.25, 0.125)), lambda k, n: 0.5 ** (k + 1) if n > 4 else 100.0 ** (-2 * k / 6)),
}


@pytest.mark.parametrize("real", [3, 4, 7])
@pytest.mark.parametrize("longer", LONGER)
def test_rotary_frequencies_change_with_the_length_of_the_text(longer, real):
    change, frequency = LONGER[longer]
    x, mask = numbers(2, 7, 3, 6), np.arange(7) < np.array([[real], [7]])
    expected = []
    for text, n in enumerate((real, 7)):
        phases = np.exp(1j * np.arange(7)[:, None] * [frequency(k, n) for k in range(3)])[:, None]
        z = 1.5 * (x[text, ..., :3] + 1j * x[text, ..., 3:]) * phases
        expected.append(np.concatenate([z.real, z.imag], -1))
    rotary = Rotary(rotary_frequencies(6, 100.0), magnitude=1.5, longer=change)
    close(rotary(jnp.asarray(x), jnp.asarray(mask)), np.stack(expected))
    close(rotary(jnp.asarray(x[1])), expected[1])


def test_rotary_in_half_precision_turns_by_exact_angles():
    rotary, x = Rotary((1.0,)), jnp.ones((3000, 1, 2))
    near(rotary(x.astype(jnp.bfloat16)).astype(jnp.float64), rotary(x), within=4 * float(jnp.finfo(jnp.bfloat16).eps))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 2, 9])
@pytest.mark.parametrize("padded", [True, False])
def test_mask(causal, window, padded):
    mask = np.array([[False, True, True, True, False], [True] * 5])
    visible = attention_mask(5, causal=causal, window=window, mask=jnp.asarray(mask) if padded else None)
    expected = np.ones((2, 5, 5), bool)
    for text, q, k in itertools.product(range(2), range(5), range(5)):
        seen = (not causal or k <= q) and (window is None or abs(q - k) < window) and (not padded or mask[text, k])
        expected[text, q, k] = seen
        if not padded:
            assert sees(q, k, causal=causal, window=window) == seen
    if visible is None:
        assert expected.all()
    else:
        np.testing.assert_array_equal(np.broadcast_to(visible, expected.shape), expected)


@pytest.mark.parametrize("cap", [None, 0.7])
def test_pattern(cap):
    q, k = numbers(4, 2, 3), numbers(4, 2, 3, key=1)
    q[1] = 0  # scores of zero, where the ratio of the cap is its limit
    scores = 0.9 * np.einsum("qhd,khd->hqk", q, k)
    scores = scores if cap is None else cap * np.tanh(scores / cap)
    weights = np.exp(scores) * np.tri(4)
    pattern = attention_pattern(jnp.asarray(q), jnp.asarray(k), 0.9, attention_mask(4, causal=True), cap)
    close(pattern, weights / weights.sum(-1, keepdims=True))


def test_a_soft_cap_is_a_held_ratio():
    scores = jnp.asarray([-50.0, -1.0, 0.0, 1e-300, 3.0])
    close(soft_cap(scores, 2.0, "logits"), 2 * np.tanh(np.asarray(scores) / 2))
    ratio = duat.record(lambda x: soft_cap(x, 2.0, "logits"))(scores).dynamics.held["logits.soft_cap"]
    assert ratio[2] == ratio[3] == 1.0
    parts = duat.decompose(lambda x: soft_cap(x, 2.0, "logits").sum(), scores)
    close(parts.input, 2 * np.tanh(np.asarray(scores) / 2))
    assert parts.completeness.holds


def make_attention(**options):
    return randomised(Attention(6, 4, dtype=jnp.float64, rngs=nnx.Rngs(0), **options))


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_attention_head_by_head(heads, bias):
    layer = make_attention(key_value_heads=heads, head_features=3, bias=bias, output_bias=bias, scale=0.8)
    x, mask = numbers(5, 6), np.tri(5, dtype=bool)
    q, k, v = (linear(part, x).reshape(5, -1, 3) for part in (layer.query, layer.key, layer.value))
    mixed = []
    for h in range(4):
        shared = h // (4 // heads)
        weights = np.exp(0.8 * q[:, h] @ k[:, shared].T) * mask
        mixed.append(weights / weights.sum(-1, keepdims=True) @ v[:, shared])
    close(layer(jnp.asarray(x)), linear(layer.output, np.concatenate(mixed, -1)))


def test_grouped_heads_are_repeated_heads():
    rotary = Rotary(rotary_frequencies(4))
    grouped = make_attention(key_value_heads=2, head_features=4, rotary=rotary)
    whole = make_attention(head_features=4, rotary=rotary)
    whole.query, whole.output = grouped.query, grouped.output
    for ours, theirs in ((whole.key, grouped.key), (whole.value, grouped.value)):
        ours.kernel[...] = jnp.repeat(theirs.kernel[...].reshape(6, 2, 4), 2, axis=1).reshape(6, 16)
        ours.bias[...] = jnp.repeat(theirs.bias[...].reshape(2, 4), 2, axis=0).reshape(16)
    x = jnp.asarray(numbers(5, 6))
    close(grouped(x), whole(x))


@pytest.mark.parametrize("together", [True, False])
def test_queries_and_keys_are_normalised_before_they_are_turned(together):
    norms = [RMSNorm(12 if together else 3, name, dtype=jnp.float64) for name in ("q", "k")]
    rotary = Rotary(rotary_frequencies(2))
    layer = make_attention(head_features=3, query_norm=norms[0], key_norm=norms[1], rotary=rotary, causal=False)
    x = numbers(5, 6)

    def normalised(norm, y):
        y = y.reshape(5, -1 if together else 4, len(norm.scale))
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + norm.epsilon) * np.asarray(norm.scale[...])
        return np.asarray(rotary(jnp.asarray(y.reshape(5, 4, 3))))

    q, k = normalised(layer.query_norm, linear(layer.query, x)), normalised(layer.key_norm, linear(layer.key, x))
    weights = np.exp(3**-0.5 * np.einsum("qhd,khd->hqk", q, k))
    mixed = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), linear(layer.value, x).reshape(5, 4, 3))
    close(layer(jnp.asarray(x)), linear(layer.output, mixed.reshape(5, 12)))


def test_a_head_may_attend_to_nothing():
    layer, x = make_attention(head_features=3, sinks=True), numbers(5, 6)
    q, k, v = (linear(part, x).reshape(5, 4, 3) for part in (layer.query, layer.key, layer.value))
    weights = np.exp(3**-0.5 * np.einsum("qhd,khd->hqk", q, k)) * np.tri(5)
    silent = np.exp(np.asarray(layer.sinks[...]))[:, None, None]
    mixed = np.einsum("hqk,khd->qhd", weights / (weights.sum(-1, keepdims=True) + silent), v)
    close(layer(jnp.asarray(x)), linear(layer.output, mixed.reshape(5, 12)))


@pytest.mark.parametrize("bias", [True, False])
def test_gated_mlp(bias):
    fresh = GatedMLP(6, 10, "silu", bias=bias, dtype=jnp.float64, rngs=nnx.Rngs(0))
    layer, x = randomised(fresh), numbers(2, 5, 6)
    z, factor = linear(layer.input, x), linear(layer.factor, x)
    close(layer(jnp.asarray(x)), linear(layer.output, z / (1 + np.exp(-z)) * factor))


GATES = {  # of every gauge, the slope with which a neuron's gate and its factor flow in the collapse
    "gate": lambda gate, factor: (factor / (1 + np.exp(-gate)), 0 * factor),
    "factor": lambda gate, factor: (0 * gate, gate / (1 + np.exp(-gate))),
    "halves": lambda gate, factor: (factor / (1 + np.exp(-gate)) / 2, gate / (1 + np.exp(-gate)) / 2),
}


@pytest.mark.parametrize("gate_rule", GATE_RULES)
def test_the_gate_rule_of_a_gated_mlp_is_a_gauge(gate_rule):
    layer = randomised(GatedMLP(6, 10, "silu", bias=False, dtype=jnp.float64, rngs=nnx.Rngs(0)))
    x, readout = numbers(4, 6), numbers(4, 6, key=2)

    def fn(x):
        return (layer(x) * readout).sum()

    gate, factor = linear(layer.input, x), linear(layer.factor, x)
    on_neurons = readout @ np.asarray(layer.output.kernel[...]).T
    parts = duat.decompose(fn, jnp.asarray(x))
    close(parts.terms["mlp"], on_neurons * gate / (1 + np.exp(-gate)) * factor)
    assert parts.completeness.holds and not np.asarray(parts.input).any()
    slopes = GATES[gate_rule](gate, factor)
    expected = sum(
        (on_neurons * slope) @ np.asarray(part.kernel[...]).T
        for slope, part in zip(slopes, (layer.input, layer.factor))
    )
    collapse = duat.collapse(fn, jnp.asarray(x), gate_rule=gate_rule)
    close(collapse.linear.T(jnp.ones((), jnp.float64)), expected)
    assert collapse.completeness.holds


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize(("experts", "chosen"), [(4, 1), (4, 2), (3, 3)])
def test_experts_token_by_token(experts, chosen, normalised):
    options = {"experts": experts, "chosen": chosen, "normalised": normalised, "dtype": jnp.float64}
    layer = randomised(Experts(6, 10, "silu", rngs=nnx.Rngs(0), **options))
    x, readout = numbers(5, 6), numbers(5, 6, key=3)
    expected, neurons = np.zeros((5, 6)), np.zeros((5, chosen, 10))
    for t, token in enumerate(x):
        scores = np.exp(token @ np.asarray(layer.router.kernel[...]))
        best = np.argsort(-scores)[:chosen]
        weights = scores[best] / (scores[best].sum() if normalised else scores.sum())
        for i, (e, weight) in enumerate(zip(best, weights)):
            gate, factor = (token @ np.asarray(part[...])[e] for part in (layer.input, layer.factor))
            outer = np.asarray(layer.output[...])[e]
            hidden = weight * gate / (1 + np.exp(-gate)) * factor
            expected[t] += hidden @ outer
            neurons[t, i] = hidden * (outer @ readout[t])
    close(layer(jnp.asarray(x)), expected)
    close(layer(jnp.asarray(np.stack([x, x[::-1]])))[1], expected[::-1])
    for fine in (True, False):
        parts = duat.decompose(lambda x: (layer(x) * readout).sum(), jnp.asarray(x), by_neuron=fine)
        close(parts.terms["mlp"], neurons.reshape(5, -1) if fine else neurons.sum((1, 2)))
        assert parts.completeness.holds


def test_experts_with_biases_and_a_limit():
    options = {"experts": 4, "chosen": 2, "bias": True, "limit": 0.7, "dtype": jnp.float64}
    layer = randomised(Experts(6, 10, "silu", rngs=nnx.Rngs(0), **options), scale=1.0)
    x, readout, expected = numbers(5, 6), numbers(5, 6, key=3), np.zeros((5, 6))
    for t, token in enumerate(x):
        scores = np.exp(linear(layer.router, token))
        best = np.argsort(-scores)[:2]
        for e in best:
            gate = token @ np.asarray(layer.input[...])[e] + np.asarray(layer.input_bias[...])[e]
            factor = token @ np.asarray(layer.factor[...])[e] + np.asarray(layer.factor_bias[...])[e]
            gate, factor = np.minimum(gate, 0.7), 1 + np.clip(factor, -0.7, 0.7)
            hidden = gate / (1 + np.exp(-gate)) * factor
            outer = hidden @ np.asarray(layer.output[...])[e] + np.asarray(layer.output_bias[...])[e]
            expected[t] += scores[e] / scores[best].sum() * outer
    close(layer(jnp.asarray(x)), expected)
    for ask in (duat.decompose, duat.collapse):
        assert ask(lambda x: (layer(x) * readout).sum(), jnp.asarray(x)).completeness.holds


def test_a_gated_mlp_is_a_term_with_a_dynamic_outer_weight():
    layer = randomised(GatedMLP(6, 10, "gelu", dtype=jnp.float64, rngs=nnx.Rngs(0)))
    x, readout = make_input(), weights_of((4, 6))
    z, factor = linear(layer.input, np.asarray(x)), linear(layer.factor, np.asarray(x))
    activated = np.asarray(ACTIVATIONS["gelu"](jnp.asarray(z)))
    neurons = activated * factor * (np.asarray(readout) @ np.asarray(layer.output.kernel[...]).T)

    def fn(x):
        return (layer(x) * readout).sum()

    fine, coarse = duat.decompose(fn, x), duat.decompose(fn, x, by_neuron=False)
    close(fine.terms["mlp"], neurons)
    close(coarse.terms["mlp"], neurons.sum(-1))
    assert not np.asarray(fine.input).any()
    for parts in (fine, coarse):
        assert abs(float(parts.completeness.error)) < 1e-12
        close(parts.offsets["mlp.output.bias"], (np.asarray(layer.output.bias[...]) * np.asarray(readout)).sum())
