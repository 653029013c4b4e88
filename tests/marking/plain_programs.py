"""Networks as people write them, without a mark."""

import jax
import jax.numpy as jnp
from jax import lax

TOKENS, WIDTH, HEADS, NEURONS = 5, 8, 2, 12
ACROSS = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))


def weights(*shapes, key=0, scale=0.5):
    keys = jax.random.split(jax.random.key(key), len(shapes))
    return [scale * jax.random.normal(k, shape, jnp.float64) for k, shape in zip(keys, shapes, strict=True)]


def layer_norm(x, scale, offset):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + offset


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def split(x):
    return x.reshape(*x.shape[:-1], HEADS, -1)


def by_einsum(q, k, v):
    scores = jnp.einsum("qhd,khd->hqk", split(q), split(k)) / jnp.sqrt(WIDTH / HEADS)
    pattern = jax.nn.softmax(jnp.where(ACROSS, scores, -jnp.inf))
    return jnp.einsum("hqk,khd->qhd", pattern, split(v)).reshape(q.shape)


def by_products(q, k, v):
    q, k, v = (split(x).transpose(1, 0, 2) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / (WIDTH / HEADS) ** 0.5
    e = jnp.where(ACROSS, jnp.exp(scores - scores.max(-1, keepdims=True)), 0)
    return (e / e.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(TOKENS, WIDTH)


def divided_late(q, k, v):
    q, k, v = (split(x).transpose(1, 0, 2) for x in (q, k, v))
    e = jnp.where(ACROSS, jnp.exp(q @ k.transpose(0, 2, 1) / (WIDTH / HEADS) ** 0.5), 0)
    return ((e @ v) / e.sum(-1, keepdims=True)).transpose(1, 0, 2).reshape(TOKENS, WIDTH)


def by_library(q, k, v):
    with jax.numpy_dtype_promotion("standard"):
        return jax.nn.dot_product_attention(split(q), split(k), split(v), is_causal=True).reshape(q.shape)


def by_vmap(q, k, v):
    def head(q, k, v):
        return jax.nn.softmax(jnp.where(ACROSS, q @ k.T / jnp.sqrt(WIDTH / HEADS), -jnp.inf)) @ v

    return jax.vmap(head, 1, 1)(split(q), split(k), split(v)).reshape(q.shape)


def by_sums(q, k, v):
    q, k, v = map(split, (q, k, v))
    scores = (q[:, None] * k[None]).sum(-1) / jnp.sqrt(WIDTH / HEADS)
    pattern = jax.nn.softmax(jnp.where(ACROSS[:, :, None], scores, -jnp.inf), axis=1)
    return (pattern[..., None] * v[None]).sum(1).reshape(TOKENS, WIDTH)


def by_running_sums(q, k, v):
    """Attention key by key with a running maximum and sum, as fast kernels compute it."""
    q, k, v = (split(x).transpose(1, 0, 2) for x in (q, k, v))

    def step(state, key):
        most, total, mixed = state
        k, v, at = key
        scores = jnp.where(jnp.arange(TOKENS) >= at, (q * k[:, None]).sum(-1) / (WIDTH / HEADS) ** 0.5, -jnp.inf)
        above = jnp.maximum(most, scores)
        old, new = jnp.exp(most - above), jnp.exp(scores - above)
        return (above, total * old + new, mixed * old[..., None] + new[..., None] * v[:, None]), None

    begin = jnp.full((HEADS, TOKENS), -1e30), jnp.zeros((HEADS, TOKENS)), jnp.zeros((HEADS, TOKENS, WIDTH // HEADS))
    keys = k.transpose(1, 0, 2), v.transpose(1, 0, 2), jnp.arange(TOKENS)
    (_, total, mixed), _ = lax.scan(step, begin, keys)
    return (mixed / total[..., None]).transpose(1, 0, 2).reshape(TOKENS, WIDTH)


ATTENTIONS = {
    of.__name__: of for of in (by_einsum, by_products, divided_late, by_library, by_vmap, by_sums, by_running_sums)
}

SQUARE, WIDE, TALL = (WIDTH, WIDTH), (WIDTH, NEURONS), (NEURONS, WIDTH)


def gelu_by_hand(z):
    return 0.5 * z * (1 + jnp.tanh(0.7978845608028654 * (z + 0.044715 * z**3)))


def gpt_layer(x, p, attention=by_einsum, gelu=jax.nn.gelu):
    q, k, v, o, w, u, b, c, d, e = p
    x = x + attention(*((layer_norm(x, 1 + d, e) @ m) for m in (q, k, v))) @ o + d
    return x + gelu(layer_norm(x, 1 + e, d) @ w + b) @ u + c


GPT = (SQUARE, SQUARE, SQUARE, SQUARE, WIDE, TALL, (NEURONS,), (WIDTH,), (WIDTH,), (WIDTH,))
LAYERS = [weights(*GPT, key=key) for key in range(3)]


def gpt(attention=by_einsum, gelu=jax.nn.gelu, around=lambda layer: layer):
    def fn(x):
        for p in LAYERS:
            x = around(lambda x, p=p: gpt_layer(x, p, attention, gelu))(x)
        return layer_norm(x, LAYERS[0][-1], 0)[-1, 1]

    return fn


def scanned(x):
    stacked = [jnp.stack(of) for of in zip(*LAYERS, strict=True)]
    x, _ = lax.scan(lambda x, p: (gpt_layer(x, p), None), x, stacked)
    return layer_norm(x, LAYERS[0][-1], 0)[-1, 1]


def rotated(x):
    angles = jnp.arange(1.0 * TOKENS)[:, None, None] / 10.0 ** jnp.arange(WIDTH / HEADS / 2)
    a, b = jnp.split(split(x), 2, -1)
    return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), b * jnp.cos(angles) + a * jnp.sin(angles)], -1)


def llama(x):
    for key in range(2):
        q, k, v, o, gate, up, down, g = weights(
            SQUARE, (WIDTH, 4), (WIDTH, 4), SQUARE, WIDE, WIDE, TALL, (WIDTH,), key=key
        )
        h = rms_norm(x, 1 + g)
        queries = rotated(h @ q).reshape(x.shape)
        keys, values = (jnp.tile((h @ m)[:, None], (1, HEADS, 1)).reshape(x.shape) for m in (k, v))
        x = x + by_products(queries, keys, values) @ o
        h = rms_norm(x, 1 - g)
        x = x + (jax.nn.silu(h @ gate) * (h @ up)) @ down
    return rms_norm(x, 1 + g)[-1, 0]


def encoder(x):
    for q, k, v, o, w, u, b, c, d, e in LAYERS[:2]:
        x = layer_norm(x + by_einsum(x @ q, x @ k + d, x @ v + e) @ o, 1 + d, e)
        x = layer_norm(x + jax.nn.relu(x @ w + b) @ u + c, 1 + e, d)
    return x.mean(0)[2]


def experts_of_all(x):
    """Every expert computes, and the router's weights mix them."""
    router, w, u = weights((WIDTH, 3), (3, *WIDE), (3, *TALL))
    gates = jax.nn.softmax(x @ router)
    return (x + jnp.einsum("te,ten,enw->tw", gates, jax.nn.gelu(jnp.einsum("tw,ewn->ten", x, w)), u))[-1, 3]


def chosen_experts(x):
    """The two best experts' weights are looked up."""
    router, w, u, b = weights((WIDTH, 3), (3, *WIDE), (3, *TALL), (3, NEURONS))
    gates, best = lax.top_k(jax.nn.softmax(x @ router), 2)
    neurons = jax.nn.relu(jnp.einsum("tw,tkwn->tkn", x, w[best]) + b[best])
    return (x + jnp.einsum("tk,tkn,tknw->tw", gates, neurons, u[best]))[-1, 3]


def mamba(x):
    into, dt, b, c, out, conv = weights((WIDTH, 2 * WIDTH), SQUARE, (WIDTH, 3), (WIDTH, 3), SQUARE, (4, WIDTH))
    a = -jnp.exp(weights((WIDTH, 3), key=1)[0])
    h, z = jnp.split(rms_norm(x, 1.0) @ into, 2, -1)
    padded = jnp.pad(h, ((3, 0), (0, 0)))
    h = jax.nn.silu(sum(padded[i : i + TOKENS] * conv[i] for i in range(4)))
    step, key, query = jax.nn.softplus(h @ dt), h @ b, h @ c

    def scan(state, now):
        step, key, query, h = now
        state = state * jnp.exp(step[:, None] * a) + (step * h)[:, None] * key
        return state, (state * query).sum(-1)

    _, y = lax.scan(scan, jnp.zeros((WIDTH, 3)), (step, key, query, h))
    return (x + (y + h) * jax.nn.silu(z) @ out)[-1, 0]


def lstm(x):
    w, u, b = weights((WIDTH, 4 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH,))

    def step(state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, _), _ = lax.scan(step, (jnp.zeros(WIDTH), jnp.zeros(WIDTH)), x)
    return h[1]


def gru(x):
    w, u = weights((WIDTH, 3 * WIDTH), (WIDTH, 3 * WIDTH))

    def step(h, x):
        (r, z, n), (a, b, c) = jnp.split(x @ w, 3), jnp.split(h @ u, 3)
        z, n = jax.nn.sigmoid(z + b), jnp.tanh(n + jax.nn.sigmoid(r + a) * c)
        return (1 - z) * n + z * h, None

    return lax.scan(step, jnp.zeros(WIDTH), x)[0][1]


def convolutions(x):
    image = jnp.kron(x, jnp.ones((2, 2)))[None, :, :, None]
    first, second = weights((3, 3, 1, 4), (3, 3, 4, 2))
    layout = ("NHWC", "HWIO", "NHWC")
    h = jax.nn.relu(lax.conv_general_dilated(image, first, (1, 1), "SAME", dimension_numbers=layout))
    h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jax.nn.relu(lax.conv_general_dilated(h, second, (1, 1), "SAME", dimension_numbers=layout)).mean((1, 2))[0, 1]


def linear_attention(x):
    q, k, v = weights(SQUARE, SQUARE, SQUARE)
    queries, keys = (jax.nn.elu(x @ m) + 1 for m in (q, k))
    states = jnp.cumsum(keys[:, :, None] * (x @ v)[:, None], 0)
    norm = (queries * jnp.cumsum(keys, 0)).sum(-1, keepdims=True)
    return (jnp.einsum("tk,tkv->tv", queries, states) / norm)[-1, 1]


def cross_attention(inputs):
    text, image = inputs
    q, k, v, w, u = weights(SQUARE, SQUARE, SQUARE, WIDE, TALL)
    mixed = text + jax.nn.softmax((text @ q) @ (image @ k).T / WIDTH**0.5) @ (image @ v)
    return (mixed + jax.nn.relu(mixed @ w) @ u)[-1, 0]


GATED = {
    "z (σ(z) u)": lambda z, u: z * (jax.nn.sigmoid(z) * u),
    "(u z) σ(z)": lambda z, u: u * z * jax.nn.sigmoid(z),
    "(u / 2) (2 σ(z)) z": lambda z, u: (u / 2) * (2 * jax.nn.sigmoid(z)) * z,
    "u z / (1 + exp(−z))": lambda z, u: u * z / (1 + jnp.exp(-z)),
    "u (z / (1 + exp(−z)))": lambda z, u: u * (z / (1 + jnp.exp(-z))),
    "(z / 2) u / (1 / 2 + exp(−z) / 2)": lambda z, u: (z / 2) * u / (0.5 + jnp.exp(-z) / 2),
}
"""Spellings of `silu(z) u`."""


def gated(of, dtype=jnp.float64):
    """Return a network with one layer of gated neurons."""
    gate, up, down, bias = (w.astype(dtype) for w in weights(WIDE, WIDE, TALL, (NEURONS,)))
    return lambda x: (x + of(x @ gate + bias, x @ up) @ down)[-1, 0]


X = weights((TOKENS, WIDTH), key=9, scale=1.0)[0]
PROGRAMS = {
    **{f"gpt {name}": (gpt(of), X) for name, of in ATTENTIONS.items()},
    "gpt rematerialised": (gpt(around=jax.checkpoint), X),
    "gpt scanned": (scanned, X),
    **{fn.__name__: (fn, X) for fn in (llama, encoder, experts_of_all, chosen_experts, mamba, lstm, gru)},
    **{fn.__name__: (fn, X) for fn in (convolutions, linear_attention)},
    "cross_attention": (cross_attention, (X, weights((7, WIDTH), key=8)[0])),
}
