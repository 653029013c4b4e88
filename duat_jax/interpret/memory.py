"""The memory that a question takes on a CPU, estimated before a model is loaded."""

import math
from functools import cache

import jax
import jax.numpy as jnp

from duat_jax.errors import warn_caller
from duat_jax.inputs.batching import bucket
from duat_jax.models.checkpoint import memory
from duat_jax.models.config import Config
from duat_jax.models.loader import skeleton

PEAK = {"explain": (0.41e9, 6, 17), "contrast": (0.42e9, 9, 28)}
"""Of each question the bytes of packages and programs, and for each token and layer the values of every neuron and of
every feature; measured, and on the documentation's page on memory."""

COPY = 4
"""The bytes of the copy in single precision that the compiler for CPUs makes of each weight in half precision.  The
order in which it computes by default makes all copies first."""


def peak_bytes(question: str, config: Config, tokens: int, dtype: str) -> int:
    """Return the estimated peak memory of a process that loads a model and asks one question."""
    constant, per_neuron, per_feature = PEAK[question]
    values = sum(
        per_neuron * block.neurons * (block.chosen_experts or 1) + per_feature * block.features
        for block in config.blocks
    )
    # A contrast has a second copy of the vocabulary's rows.
    further = (
        COPY * config.vocab * config.features if question == "contrast" and jnp.dtype(dtype).itemsize < COPY else 0
    )
    return int(constant + _bytes_of_weights(config, dtype) + further + 4 * bucket(tokens, config.positions) * values)


@cache
def _bytes_of_weights(config: Config, dtype: str) -> int:
    """Return the bytes of all weights, with the copies that are made of those in half precision."""
    leaves = jax.tree.leaves(skeleton(config, dtype))
    sizes = (leaf.dtype.itemsize + COPY * (leaf.dtype.itemsize < COPY) for leaf in leaves)
    return sum(math.prod(leaf.shape) * size for leaf, size in zip(leaves, sizes, strict=True))


def warn_of_memory(question: str, config: Config, tokens: int, dtype: str) -> None:
    """Warn if a question is likely to need more memory than is free, where that is known."""
    free = memory.free_memory()
    if free is None or jax.default_backend() != "cpu":
        return
    if (peak := peak_bytes(question, config, tokens, dtype)) > free:
        smaller = ", or --dtype float32" if peak_bytes(question, config, tokens, "float32") < peak else ""
        warn_caller(
            f"about {memory.formatted(peak)} of memory are needed for {tokens} tokens, and"
            f" {memory.formatted(free)} are free: give a shorter text{smaller}"
        )
