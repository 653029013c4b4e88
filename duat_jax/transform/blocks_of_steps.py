"""Scans whose transpose keeps the carries between blocks of steps alone."""

from collections.abc import Callable
from math import isqrt
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def scan_in_blocks(
    step: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, length: int, reverse: bool, unroll: Any
) -> tuple[Any, Any]:
    """Scan in blocks of about `√length` steps, whose values the transpose computes again, one block at a time."""
    size = max(isqrt(length), 1)
    count, rest = divmod(length, size)
    # In the order of computation, the steps that fill no block come last.
    first, last = (slice(rest, None), slice(rest)) if reverse else (slice(length - rest), slice(length - rest, None))

    def block(carry: Any, xs: Any) -> tuple[Any, Any]:
        return lax.scan(step, carry, xs, reverse=reverse, unroll=unroll)

    recomputed = jax.checkpoint(block, prevent_cse=False)
    blocks = jax.tree.map(lambda x: x[first].reshape(count, size, *x.shape[1:]), xs)
    carry, of_blocks = lax.scan(recomputed, init, blocks, length=count, reverse=reverse)
    ys = jax.tree.map(lambda y: y.reshape(count * size, *y.shape[2:]), of_blocks)
    if not rest:
        return carry, ys
    carry, of_rest = recomputed(carry, jax.tree.map(lambda x: x[last], xs))
    return carry, jax.tree.map(lambda a, b: jnp.concatenate([b, a] if reverse else [a, b]), ys, of_rest)
