"""A long training is traced back: its parts sum to the change of a loss, over examples and over weights."""

import jax
import pytest
from helpers import near

from benchmarks.long_training import measured


@pytest.mark.slow
def test_a_training_of_a_thousand_steps_is_traced_back():
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        results = measured(1000)
    assert results["verdicts"] == ["holds", "holds"]
    change = results["after"] - results["before"]
    assert change < -0.5
    for name, tolerance in zip(("over examples", "over weights"), results["tolerances"], strict=True):
        near(results[name], change, within=tolerance)
