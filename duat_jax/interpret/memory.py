"""The memory that a question takes on a CPU, estimated before a model is loaded."""

import math
from functools import cache

import jax

from duat_jax.errors import warn_caller
from duat_jax.inputs.batching import bucket
from duat_jax.models.checkpoint import memory
from duat_jax.models.config import Config
from duat_jax.models.loader import skeleton

PEAK = {"explain": (0.41e9, 6, 17), "contrast": (0.42e9, 9, 28)}
"""Of each question the bytes of packages and programs, and for each token and layer the values of every neuron and of
every feature; measured, and on the documentation's page on memory."""


def peak_bytes(question: str, config: Config, tokens: int, dtype: str) -> int:
    """Return the estimated peak memory of a process that loads a model and asks one question."""
    constant, per_neuron, per_feature = PEAK[question]
    values = sum(
        per_neuron * block.neurons * (block.chosen_experts or 1) + per_feature * block.features
        for block in config.blocks
    )
    return int(constant + _bytes_of_weights(config, dtype) + 4 * bucket(tokens, config.positions) * values)


@cache
def _bytes_of_weights(config: Config, dtype: str) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(skeleton(config, dtype)))


def warn_of_memory(question: str, config: Config, tokens: int, dtype: str) -> None:
    """Warn if a question is likely to need more memory than is free, where that is known."""
    free = memory.free_memory()
    if free is None or jax.default_backend() != "cpu":
        return
    if (peak := peak_bytes(question, config, tokens, dtype)) > free:
        smaller = "" if dtype == "bfloat16" else ", or --dtype bfloat16"
        warn_caller(
            f"about {memory.formatted(peak)} of memory are needed for {tokens} tokens, and"
            f" {memory.formatted(free)} are free: give a shorter text{smaller}"
        )
