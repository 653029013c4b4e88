"""Results of every kind are read back as they were saved: the kept table of round trips holds today."""

import numpy as np
import pytest

from duat_jax.sealed import seal
from experiments.kept_results import kept
from tests.every_result import MAKERS
from tests.result_trips import DTYPES, by_numpy, by_safetensors, compared, leaves, trips

KEPT = kept("round_trips")["results"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_saved_result_is_read_back_bit_for_bit(kind, dtype, tmp_path):
    assert trips(kind, dtype, tmp_path) == {form: row[dtype] for form, row in KEPT[kind.__name__].items()}


def test_every_cell_of_results_is_equal():
    assert set(KEPT) == {kind.__name__ for kind in MAKERS}
    for rows in KEPT.values():
        assert len(rows) == 6 and all(row == dict.fromkeys(DTYPES, "equal") for row in rows.values())


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([np.float32(0.0)], [np.float32(-0.0)]),
        ([np.ones(2, np.float32)], [np.ones(2)]),
        ([np.ones(2)], [np.ones((1, 2))]),
        ([1], [1.0]),
        ([1, 2], [1]),
        ([[*leaves((1, 2))]], [[*leaves([1, 2])]]),
    ],
)
def test_a_cell_tells_bits_dtypes_shapes_and_types_apart(ours, theirs):
    assert compared(ours, ours) == "equal" and compared(ours, theirs).startswith("differs: ")


def test_both_readers_of_a_file_see_its_numbers(tmp_path):
    arrays = {str(i): np.arange(i, dtype=np.float64).reshape(i, 1) for i in range(12)} | {"12": np.array([True])}
    (tmp_path / "x").write_bytes(seal(arrays, {}))
    for read in (by_safetensors, by_numpy):
        numbers = read(tmp_path / "x")
        assert [each.shape for each in numbers] == [each.shape for each in arrays.values()]
        assert numbers[3].view(np.float64).tolist() == [[0], [1], [2]] and numbers[12].tolist() == [1]
