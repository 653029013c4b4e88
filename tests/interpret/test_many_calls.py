"""A process that explains many texts of random lengths holds as much memory at the end as after a tenth of them."""

import jax
import pytest

from benchmarks.long_runs import calls


@pytest.mark.slow
def test_five_hundred_calls_hold_as_much_memory_as_fifty():
    with jax.enable_x64(False):
        found = calls(500)
    assert found["after all, MB"] < 1.05 * found["after a tenth, MB"]
