"""AtP*: gradient x change with the attention computed anew, and with gradients that skip one layer at a time.

Source: Kramár et al., "AtP*: An efficient and scalable method for localizing LLM behaviour to components", 2024
(arXiv 2403.00745).  Its nodes are queries, keys, values and neurons.  Here a head at a token is scored by the sum of
the effects on its output there: of its query, of each key and of each value.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.attribution.unit_values import Read, UnitValues, sites_of, values_of
from duat_jax.attribution.units import _edits, _gradient
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.nn.pattern import attention_mask, attention_pattern
from duat_jax.transform import marks
from duat_jax.transform.editing import edit
from duat_jax.transform.recording import record_kinds


def atp_star(model: Transformer, read: Read, x: Array, y: Array, *, dropped: bool = True) -> UnitValues:
    """Score neurons and heads by AtP*; streams are left out."""
    gradient, values = _gradient(read, x)
    reference = values_of(read, y)
    change = UnitValues(values.neurons - reference.neurons, changes_of_heads(model, read, x, y), None)
    if not dropped:
        return UnitValues(gradient.neurons * change.neurons, gradient.heads * change.heads, None)
    sites = sites_of(record_kinds(read, x, ()).program)
    pulled_back = jax.vjp(lambda added: _streams(read, x, sites, added), jax.tree.map(jnp.zeros_like, values[:2]))[1]
    layers = len(values.neurons)
    of_layers = jnp.arange(layers)

    def add(total: Any, skipped: Array) -> tuple[Any, None]:
        passed_on = jnp.zeros_like(gradient.streams).at[skipped].set(gradient.streams[skipped + 1])
        (before,) = pulled_back(passed_on)

        def score(before: Array, full: Array, change: Array) -> Array:
            at = of_layers.reshape(-1, *[1] * (full.ndim - 1))
            g = jnp.where(at < skipped, before, jnp.where(at > skipped, full, 0))
            of_entries = g * change
            return jnp.abs(of_entries.sum(-1, keepdims=True) if full.ndim == 4 else of_entries)

        scores = tuple(map(score, before, gradient[:2], change[:2]))
        return jax.tree.map(jnp.add, total, scores), None

    nothing = (jnp.zeros_like(values.neurons), jnp.zeros_like(values.heads[..., :1]))
    neurons, heads = jax.lax.scan(add, nothing, of_layers)[0]
    return UnitValues(neurons / (layers - 1), heads / (layers - 1), None)


def _streams(read: Read, x: Array, sites: UnitValues, added: Any) -> Float[Array, "streams tokens features"]:
    edits = _edits(sites.neurons, added[0]) | _edits(sites.heads, added[1])
    seen = record_kinds(edit(read, edits), x, (marks.STREAM,)).seen
    return jnp.stack([seen[site] for site in sites.streams])


def changes_of_heads(
    model: Transformer, read: Read, x: Array, y: Array
) -> Float[Array, "layers tokens heads head_features"]:
    """Return the sum of the changes of each head's output by its query, by each key and by each value alone."""
    texts = [record_kinds(read, z, (marks.POINT,)) for z in (x, y)]

    def parts(name: str) -> list[list[Array]]:
        sites = [site for site in texts[0].program.of_kind(marks.POINT) if site.key.name == name]
        return [[text.seen[site] for text in texts] for site in sites]

    blocks: list[Any] = list(model.stack.blocks)
    of_layers = zip(
        blocks,
        parts("attention.queries"),
        parts("attention.keys"),
        parts("attention.values"),
        strict=True,
    )
    return jnp.stack([_of_layer(block.attention, *given) for block, *given in of_layers])


def _of_layer(attention: Any, queries: list[Array], keys: list[Array], values: list[Array]) -> Array:
    repeats = attention.heads // attention.key_value_heads
    (k, k_reference), (v, v_reference) = ([jnp.repeat(z, repeats, axis=1) for z in each] for each in (keys, values))
    visible = attention_mask(len(k), causal=attention.causal, window=attention.window)

    def pattern(q: Array, k: Array) -> Array:
        return attention_pattern(q, k, attention.scale, visible, attention.cap, None)

    clean = pattern(queries[0], k)
    replaced = jnp.eye(len(k), dtype=bool)[:, :, None, None]
    of_keys = jax.lax.map(lambda token: clean - pattern(queries[0], jnp.where(token, k_reference, k)), replaced).sum(0)
    moved = clean - pattern(queries[1], k) + of_keys

    def mixed(pattern: Array, values: Array) -> Array:
        return jnp.einsum("hqk,khd->qhd", pattern, values, precision=PRECISION)

    return mixed(moved, v) + mixed(clean, v - v_reference)
