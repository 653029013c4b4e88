"""Every family, read from every form that it is stored in, is what another tool reads: the kept table holds today."""

import jax
import numpy as np
import pytest

from experiments.kept_results import kept

from .comparison import compared
from .families import FAMILIES
from .round_trips import rows_of

KEPT = kept("round_trips")["families"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_round_trips_of_a_family_end_as_they_are_kept(family):
    with jax.numpy_dtype_promotion("standard"):
        assert rows_of(family) == KEPT[family]


ONE = {"w": np.ones(3, np.float32), "v": np.array([0.1, 0.0], np.float32)}


@pytest.mark.parametrize(
    ("ours", "theirs", "original", "cell"),
    [
        (ONE, ONE, ONE, "equal"),
        (ONE, ONE, ONE | {"v": np.array([0.1, 0])}, "equal to rounding of float32"),
        (ONE, ONE | {"v": ONE["v"].astype(float)}, ONE, "equal (1 tensors in float64 there)"),
        (ONE | {"w": np.ones(3)}, ONE, ONE, "differs: w is read in float64"),
        ({"w": ONE["w"]}, ONE, ONE, "differs: v isn't in all of them"),
        (ONE, ONE | {"v": np.array([0.1, -0.0], np.float32)}, ONE, "differs: v isn't what the other tool reads"),
        (ONE, ONE, ONE | {"v": np.array([0.1 + 1e-8, 0])}, "differs: v isn't the file's tensor, rounded once"),
    ],
)
def test_a_cell_says_whether_the_bits_are_those_of_the_other_tool_and_of_the_file(ours, theirs, original, cell):
    assert compared(ours, theirs, original, "float32") == cell
