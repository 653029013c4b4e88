"""The estimate of memory is the formula of the documentation's page, and is warned of where it doesn't fit."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from cases import GOLDEN
from command import run

import duat_jax as duat
from duat_jax.interpret.memory import COPY, PEAK, peak_bytes
from duat_jax.models.checkpoint import memory
from duat_jax.nn.linear import product

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "memory.md"


def test_the_factors_are_those_of_the_page():
    first, second = re.search(r"explain, contrast = \((.*?)\), \((.*?)\)", PAGE.read_text()).groups()
    for question, written in zip(("explain", "contrast"), (first, second), strict=True):
        constant, *factors = map(float, written.split(","))
        assert PEAK[question] == (constant * 1e9, *factors)


def test_the_estimate_is_the_formula():
    config = duat.load_config()
    model = duat.load()
    parameters = sum(leaf.size for leaf in jax.tree.leaves(model))
    block = config.blocks[0]
    expected = 0.41e9 + 4 * parameters + 4 * 128 * config.layers * (6 * block.neurons + 17 * block.features)
    assert peak_bytes("explain", config, 100, "float32") == int(expected)
    # Of each weight in half precision there is a copy in single precision.
    assert peak_bytes("explain", config, 100, "bfloat16") == int(expected + 2 * parameters)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_compiled_forward_pass_needs_no_more_than_is_estimated_for_weights(dtype, optimised):
    """Products with weights in half precision hold a copy of all of them in single precision."""
    weights = [jnp.zeros((400, 400), dtype)] * 6

    def chain(x, weights):
        for matrix in weights:
            x = jnp.tanh(product(x, matrix))
        return x

    memory = jax.jit(chain).lower(jnp.zeros((4, 400), jnp.float32), weights).compile().memory_analysis()
    copies = memory.temp_size_in_bytes / sum(matrix.size for matrix in weights)
    assert copies < (COPY if dtype == "bfloat16" else 0) + 0.3


@pytest.mark.parametrize("reference", [(), ("--reference", "w5 w17 w4")])
def test_too_little_memory_is_one_line_before_the_run(monkeypatch, reference):
    asked = ("explain", "w5 w17 w3", "--model", GOLDEN / "gpt2", *reference)
    for free, lines in ((10**8, 1), (10**12, 0), (None, 0)):
        monkeypatch.setattr(memory, "free_memory", lambda free=free: free)
        result = run(*asked)
        assert result.exit_code == 0 and result.stderr.count("of memory are needed for 3 tokens") == lines
