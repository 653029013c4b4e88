"""A survey whose process is killed at random moments ends in the same bytes."""

import pytest

from benchmarks.killed_survey import measured


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_survey_that_is_killed_again_and_again_ends_in_the_same_bytes(seed):
    results = measured(tokens=250_000, kills=4, seed=seed)
    there = results["parts at each kill"]
    assert results["same"] and there == sorted(there) and 0 < there[0] <= results["parts"]
