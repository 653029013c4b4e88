"""Attention within groups of neighbouring tokens, as LongLoRA has it."""

from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.nn.attention import Attention
from duat_jax.nn.linear import PRECISION
from duat_jax.nn.pattern import attention_mask, attention_pattern
from duat_jax.papers.mixers import Mixer
from duat_jax.papers.validation import refuse, too_small
from duat_jax.transform.marks import point


@final
class GroupedAttention(Mixer):
    """Attention within groups of neighbouring tokens, those of half of the heads shifted by half a group if `shifted`.

    `y = Σ_h H_h x W_{V,h} W_{O,h}`, where `H_h` is zero between tokens of two groups. The shifted groups are
    LongLoRA's, causal, with one difference: the tokens before the first shifted group are a group of their own, and
    aren't joined with the last tokens of the text.

    Args:
        attention: the attention whose weights are used.
        group: the number of tokens of a group; an even one, if groups are shifted.
        shifted: whether the second half of the heads has shifted groups.

    Raises:
        InvalidInput: if the group is too small or odd, or the attention isn't a causal `duat.nn.Attention`, or has
            a window, normalised queries or keys, capped scores or sinks.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> from flax import nnx
        >>> attention = duat.nn.Attention(8, 2, rngs=nnx.Rngs(0))
        >>> duat.papers.GroupedAttention(attention, 4, shifted=True)(jnp.ones((10, 8))).shape
        (10, 8)

    Source: Chen et al., "LongLoRA", 2023, Section 3.2.
    """

    def __init__(self, attention: Attention, group: int, *, shifted: bool) -> None:
        refuse(_ungrouped(attention, group, shifted=shifted))
        self.attention = attention
        self.group = group
        self.shifted = shifted

    def _mix(self, x: Array) -> Array:
        attention = self.attention
        queries, keys, values = (
            part(x).reshape(*x.shape[:-1], -1, attention.head_features)
            for part in (attention.query, attention.key, attention.value)
        )
        if attention.rotary is not None:
            queries, keys = attention.rotary(queries), attention.rotary(keys)
        queries, keys = point(queries, "attention.queries"), point(keys, "attention.keys")
        values = point(values, "attention.values")
        if attention.key_value_heads != attention.heads:
            each = attention.heads // attention.key_value_heads
            keys, values = (jnp.repeat(part, each, axis=-2) for part in (keys, values))
        parts, half = (queries, keys, values), attention.heads // 2
        halves = ((slice(half), 0), (slice(half, None), self.group // 2)) if self.shifted else ((slice(None), 0),)
        mixed = [self._in_groups(*(part[..., heads, :] for part in parts), ahead=ahead) for heads, ahead in halves]
        joined = point(jnp.concatenate(mixed, -2), "attention.mixed")
        return attention.output(joined.reshape(*x.shape[:-1], -1))

    def _in_groups(self, queries: Array, keys: Array, values: Array, *, ahead: int) -> Array:
        """Mix values within groups, the first of which begins some places ahead of the first token."""
        tokens, behind = queries.shape[-3], -(queries.shape[-3] + ahead) % self.group

        def grouped(part: Array) -> Array:
            filled = jnp.pad(part, [(0, 0)] * (part.ndim - 3) + [(ahead, behind), (0, 0), (0, 0)])
            return filled.reshape(*part.shape[:-3], -1, self.group, *part.shape[-2:])

        real = jnp.pad(jnp.ones(tokens, bool), (ahead, behind)).reshape(-1, self.group)
        visible = attention_mask(self.group, causal=True, mask=real)
        pattern = attention_pattern(grouped(queries), grouped(keys), self.attention.scale, visible)
        mixed = jnp.einsum("...hqk,...khd->...qhd", pattern, grouped(values), precision=PRECISION)
        return mixed.reshape(*values.shape[:-3], -1, *values.shape[-2:])[..., ahead : ahead + tokens, :, :]


def _ungrouped(attention: Any, group: int, *, shifted: bool) -> list[str]:
    """Return a sentence for everything for which an attention can't be that of groups."""
    wrong = too_small(1, group=group)
    if shifted and not wrong and group % 2:
        wrong = [f"group is {group}: give an even number, since shifted groups begin half a group earlier"]
    if not isinstance(attention, Attention):
        return [*wrong, f"the attention is a {type(attention).__name__}: give a duat.nn.Attention"]
    if not attention.causal:
        wrong.append("the attention isn't causal: give one with causal=True")
    if shifted and attention.heads < 2:
        wrong.append("shifted groups need two heads at least, and the attention has one")
    unknown = {
        "a window": attention.window is not None,
        "normalised queries or keys": attention.query_norm is not None or attention.key_norm is not None,
        "capped scores": attention.cap is not None,
        "sinks": attention.sinks is not None,
    }
    return wrong + [f"the attention has {name}: groups need one without" for name, there in unknown.items() if there]
