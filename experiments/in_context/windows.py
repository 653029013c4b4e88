"""Cross-entropy of a language model whose attention is restricted to some tokens, such as the last ones."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from duat_jax.errors import InvalidInput
from duat_jax.in_context.runs import logits_of
from duat_jax.models.sites import PATTERN
from duat_jax.models.transformer import Transformer
from duat_jax.nn.attention import LONGEST_STORED
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.recording import record_kinds


def window(tokens: int, kernel: int, kept: Sequence[int] = ()) -> Bool[np.ndarray, "queries keys"]:
    """Return a mask of the last tokens before each position, itself included, and of positions that are always visible.

    Example:
        >>> window(4, 2, [0]).astype(int)
        array([[1, 1, 0, 0],
               [1, 1, 1, 0],
               [1, 1, 1, 1],
               [1, 0, 1, 1]])
    """
    places = np.arange(tokens)
    return (np.abs(places[:, None] - places) < kernel) | np.isin(places, kept)


def window_losses(
    model: Transformer, ids: Int[np.ndarray, "texts tokens"], visible: Bool[np.ndarray, "queries keys"]
) -> Float[np.ndarray, "texts"]:
    """Return the mean cross-entropy of each text with every layer's attention restricted to visible tokens."""
    # The attention weights of visible tokens are divided by their sum, which is the softmax over these tokens alone.
    return on_host(_losses(model, jnp.asarray(ids), jnp.asarray(visible)))


def restricted_states(
    model: Transformer, ids: Int[Array, "tokens"], visible: Bool[Array, "queries keys"]
) -> Float[Array, "tokens features"]:
    """Return the states from which logits are read, with every layer's attention restricted to visible tokens.

    Example:
        >>> import duat_jax as duat
        >>> restricted_states(duat.load(), jnp.arange(1, 5), jnp.asarray(window(4, 2))).shape
        (4, 192)
    """
    if len(ids) > LONGEST_STORED:
        raise InvalidInput(
            f"the texts have {len(ids)} tokens: give at most {LONGEST_STORED}, whose patterns are stored"
        )
    x = model.first(model.embed(ids))
    for block in model.stack.blocks:
        recording = record_kinds(block, x, (marks.HOLD,))
        edits = {
            site: Edit(kept=0, added=_cut(recording.seen[site], visible))
            for site in recording.program.of_kind(marks.HOLD)
            if site.key.name == PATTERN
        }
        x = edit(block, edits)(x)
    return model.head.states(x if model.final_norm is None else model.final_norm(x))


@jax.jit
def _losses(model: Transformer, ids: Array, visible: Array) -> Array:
    def of_text(ids: Array) -> Array:
        logits = logits_of(model, restricted_states(model, ids, visible)[:-1])
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[1:, None], -1).mean()

    return jax.lax.map(of_text, ids)


def _cut(pattern: Array, visible: Array) -> Array:
    kept = jnp.where(visible, pattern, 0)
    return kept / kept.sum(-1, keepdims=True)
