"""The kept table of round trips has every family, form and dtype, and no cell in which two tools differ."""

import re

import pytest

from duat_jax.models.registry import FAMILIES
from experiments.kept_results import kept
from experiments.round_trips import DTYPES, fields

KEPT = kept("round_trips")
CELL = re.compile(r"(equal|equal to rounding of \w+)( \(.+\))?|refused: .+")
DIRECTORIES = [f"directory in {kind}{end}" for end in ("", ", sharded") for kind in DTYPES[:3]]


def test_every_family_is_in_the_table():
    assert set(KEPT["families"]) == set(FAMILIES)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_cell_is_equal_or_refused_with_a_reason(family):
    rows = KEPT["families"][family]
    assert set(DIRECTORIES) <= set(rows)
    for form, cells in rows.items():
        assert list(cells) == list(DTYPES), form
        assert all(CELL.fullmatch(cell) for cell in cells.values()), (form, cells)


@pytest.mark.parametrize("stored", DTYPES[:3])
def test_a_dtype_that_holds_the_stored_numbers_loses_none(stored):
    for rows in KEPT["families"].values():
        cells = rows[f"directory in {stored}"]
        assert {cells[dtype] for dtype in ("float32", "float64")} == {"equal"}
        assert cells[stored].startswith("equal") and "rounding" not in cells[stored]


def test_the_page_counts_every_cell():
    counts = fields(KEPT)
    assert int(counts["cells"]) == sum(int(counts[name]) for name in ("equal", "rounded", "refused"))
