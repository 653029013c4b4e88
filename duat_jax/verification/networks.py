"""Networks for verification: random ones of every block type, and checkpoints."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from duat_jax.errors import DuatError
from duat_jax.models.loader import load
from duat_jax.nn import BLOCKS, Stack, make_stack
from duat_jax.verification.compare import Verification, verify
from symbolic.theorems import residual_stack as symbols

Module = TypeVar("Module")

EMBEDDED = Path(__file__).parent.parent / "models" / "embedded"
_TOKENS = 3


def random_stack(block: str, depth: int, key: int = 0) -> Stack:
    """Return a small stack with random parameters, including biases and norms."""
    if block not in BLOCKS:
        raise DuatError(f"no block is called {block!r}: choose one of {', '.join(BLOCKS)}")
    config = BLOCKS[block](features=6, heads=2, neurons=10)
    stack = make_stack(config, layers=symbols.check_depth(depth), dtype=jnp.float64, rngs=nnx.Rngs(key))
    return randomised(stack, key)


def randomised(module: Module, key: int = 0, scale: float = 0.3) -> Module:
    """Add noise to every parameter of a module, so that none is zero or one."""
    leaves, tree = jax.tree.flatten(module)
    keys = jax.random.split(jax.random.key(key), len(leaves))
    noisy = [x + scale * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, noisy)


def networks(depth: int | None = None, block: str | None = None, model: Path | None = None) -> Iterator[Verification]:
    """Verify random networks of one or all block types, or a checkpoint.

    Args:
        depth: number of layers: 4 for random networks if absent, and all layers of a checkpoint.
        block: one block type; all if absent.
        model: a checkpoint, as `load` takes it.

    Raises:
        DuatError: if the block is unknown, both block and model are given, or the checkpoint has fewer layers.
        SymbolicError: if the depth isn't a positive integer.
        BadCheckpoint: if the checkpoint can't be loaded.
    """
    if model is None:
        x = jax.random.normal(jax.random.key(1), (_TOKENS, 6), jnp.float64)
        for name in BLOCKS if block is None else (block,):
            yield verify(random_stack(name, 4 if depth is None else depth), x, name)
        return
    if block is not None:
        raise DuatError("a model has a block type of its own: give --model or --block, not both")
    transformer = load(model, dtype=jnp.float64)
    blocks = transformer.stack.blocks
    layers = len(blocks) if depth is None else symbols.check_depth(depth)
    if layers > len(blocks):
        raise DuatError(f"{model} has {len(blocks)} layers: give a depth of at most that")
    x = transformer.embed(jnp.arange(_TOKENS))
    yield verify(Stack(blocks[:layers]), transformer.first(x), str(model))
