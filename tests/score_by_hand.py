"""Queries and keys as sums over their sources, by matrices alone: every source is carried forwards, layer by layer.

Nothing of record and replay is used, and nothing of the model but its parameters and its settings.
"""

import numpy as np


def _array(parameter):
    return np.asarray(parameter[...])


def _total(parts):
    return sum(parts.values())


def _mapped(fn, parts):
    return {source: fn(part) for source, part in parts.items()}


def _with_bias(parts, bias, name):
    some = next(iter(parts.values()))
    return parts if bias is None else {**parts, (name, None): np.broadcast_to(_array(bias), some.shape).copy()}


def _linear(parts, layer, scope):
    return _with_bias(_mapped(lambda v: v @ _array(layer.kernel), parts), layer.bias, f"{scope}{layer.name}.bias")


def _normed(parts, norm, scope):
    """The scale is that of the sum; mean and scale are taken off every source alike."""
    if norm is None:
        return parts
    with_mean = hasattr(norm, "bias")
    centred = _mapped(lambda v: v - v.mean(-1, keepdims=True) if with_mean else v, parts)
    scale = 1 / np.sqrt((_total(centred) ** 2).mean(-1, keepdims=True) + norm.epsilon)
    weight = _array(norm.scale) + (0 if with_mean else norm.weight_offset)
    return _with_bias(
        _mapped(lambda v: v * scale * weight, centred), norm.bias if with_mean else None, f"{scope}{norm.name}.offset"
    )


def _turned(v, rotary):
    """`(a + i b) e^{i t θ}`; features beyond the turned ones stay."""
    if rotary is None:
        return v
    angles = np.arange(len(v))[:, None] * np.array(rotary.frequencies)
    pairs = len(rotary.frequencies)
    a, b = (
        (v[..., 0 : 2 * pairs : 2], v[..., 1 : 2 * pairs : 2])
        if rotary.interleaved
        else (v[..., :pairs], v[..., pairs : 2 * pairs])
    )
    z = (a + 1j * b) * np.exp(1j * angles)[:, None]
    turned = (
        np.stack([z.real, z.imag], -1).reshape((*a.shape[:-1], -1))
        if rotary.interleaved
        else np.concatenate([z.real, z.imag], -1)
    )
    return np.concatenate([turned, v[..., 2 * pairs :]], -1)


def _heads(parts, layer, norm, attention, scope):
    split = _mapped(lambda v: v.reshape(len(v), -1, attention.head_features), _linear(parts, layer, scope))
    return _mapped(lambda v: _turned(v, attention.rotary), _normed(split, norm, scope))


def _sigma(name, z):
    if name == "silu":
        return z / (1 + np.exp(-z))
    if name == "gelu_tanh":
        return z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    assert name == "gelu"
    from math import erf

    return z / 2 * (1 + np.vectorize(erf)(z / np.sqrt(2)))


def _mlp(parts, mlp, number, scope, neurons):
    """What the term adds, token by token, and its bias; what it reads is all of the stream."""
    x = _total(parts)
    activated = _sigma(mlp.activation, _total(_linear({None: x}, mlp.input, "")))
    if hasattr(mlp, "factor"):
        activated = activated * _total(_linear({None: x}, mlp.factor, ""))
    kernel = _array(mlp.output.kernel)
    y = activated @ kernel
    rows = {(f"layer {number} MLP", token): row * np.eye(len(y))[:, [token]] for token, row in enumerate(y)}
    if neurons is not None and neurons[0] == number:
        token = neurons[1]
        del rows[f"layer {number} MLP", token]
        each = (a * row * np.eye(len(y))[:, [token]] for a, row in zip(activated[token], kernel))
        rows |= {("neuron", n): part for n, part in enumerate(each)}
    return _with_bias(rows, mlp.output.bias, f"{scope}{mlp.output.name}.bias")


def _added(*many):
    found = {}
    for parts in many:
        for source, part in parts.items():
            found[source] = found[source] + part if source in found else part
    return found


def pattern_of(scores, attention):
    """The softmax of capped scores over what is seen, `[heads, queries, keys]`."""
    if attention.cap is not None:
        scores = attention.cap * np.tanh(scores / attention.cap)
    tokens = scores.shape[-1]
    distances = np.arange(tokens)[:, None] - np.arange(tokens)
    seen = (distances >= 0) & (distances < (attention.window or tokens))
    weights = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    return weights / weights.sum(-1, keepdims=True)


def _mixed(parts, queries, keys, attention, scope, through, number):
    group = attention.heads // attention.key_value_heads
    scores = attention.scale * np.einsum("qhf,khf->hqk", _total(queries), np.repeat(_total(keys), group, 1))
    pattern = pattern_of(scores, attention)
    values = _mapped(
        lambda v: np.repeat(v.reshape(len(v), -1, attention.head_features), group, 1),
        _linear(parts, attention.value, scope),
    )
    mixed = _mapped(lambda v: np.einsum("hqk,khf->qhf", pattern, v), values)
    if through:
        y = _total(mixed)
        one = [(t, h, np.zeros_like(y)) for t in range(len(y)) for h in range(attention.heads)]
        for t, h, part in one:
            part[t, h] = y[t, h]
        mixed = {(f"layer {number} head {h}", t): part for t, h, part in one}
    return _linear(_mapped(lambda v: v.reshape(len(v), -1), mixed), attention.output, scope)


def queries_and_keys(model, ids, layer, *, through=False, neurons=None):
    """Return of every source `(part, token)` what it adds to the queries and the keys of a layer, and the attention.

    Args:
        model: a causal model in double precision.
        ids: token ids, `[tokens]`.
        layer: which layer.
        through: whether what earlier heads mixed is a source, at which every other path ends.
        neurons: a layer and a token at which its MLP's neurons are sources of their own, `("neuron", n)`.
    """
    ids, config = np.asarray(ids), model.config
    embeddings = {"token": config.embedding_scale * _array(model.embedding.token)[ids]}
    if model.embedding.position is not None:
        first = config.position_offset
        embeddings["position"] = _array(model.embedding.position)[first : first + len(ids)]
    x = {(name, t): row * np.eye(len(ids))[:, [t]] for name, rows in embeddings.items() for t, row in enumerate(rows)}
    for number, block in enumerate(model.stack.blocks):
        scope, attention = f"layers.{number}.", block.attention
        normed = _normed(x, block.norm_1, scope)
        queries = _heads(normed, attention.query, attention.query_norm, attention, scope)
        keys = _heads(normed, attention.key, attention.key_norm, attention, scope)
        if number == layer:
            return queries, keys, attention
        added = _mixed(normed, queries, keys, attention, scope, through, number)
        after = _added(x, _normed(added, block.attention_norm, scope))
        read = x if block.arrangement == "parallel" else after
        y = _mlp(_normed(read, block.norm_2, scope), block.mlp, number, scope, neurons)
        x = _added(after, _normed(y, block.mlp_norm, scope))
    raise AssertionError("no such layer")
