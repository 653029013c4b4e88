"""The kept table of round trips has every family, form and dtype, and no cell in which two tools differ."""

import re

import pytest

from duat_jax.models.registry import FAMILIES
from experiments.kept_results import kept
from experiments.round_trips import DTYPES, fields

KEPT = kept("round_trips")
CELL = re.compile(r"(equal|equal to rounding of \w+)( \(.+\))?|refused: .+")
DIRECTORIES = [f"directory in {kind}{end}" for end in ("", ", sharded") for kind in DTYPES[:3]]
ADAPTERS = [f"PEFT adapter{end}" for end in (" in float32", " in bfloat16", " in float16", " written here", ", merged")]
COPIES = [f"copy with changed weights, in {kind}" for kind in DTYPES[:3]]
FORMS = {*DIRECTORIES, *ADAPTERS, *COPIES, "copy with a merged adapter", "pruned copy, in float16"}
PACKED = {"gpt_oss": {"directory in MXFP4"}}
TRAINED = {"copy of a trained model", "PEFT adapter trained here", "copy with a trained adapter"}
ENCODERS = {"bert", "albert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta", "camembert", "vit"}
PARAMETERS = {"PEFT adapter of experts' parameters"}
ROUTED = {"mixtral", "qwen3_moe", "olmoe", "granitemoe", "gpt_oss"}
GGUF = [{f"GGUF in {kind}" for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_K", "Q6_K", "MXFP4")}, {"GGUF in every type"}]
STORED_AS_ANOTHER = ("gemma3", "distilbert")
"""Families whose GGUF files state that they are of a Gemma 3 of text alone, and of a BERT."""


def test_every_family_is_in_the_table():
    assert set(KEPT["families"]) == set(FAMILIES)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_cell_is_equal_or_refused_with_a_reason(family):
    rows = KEPT["families"][family]
    trained = set() if family in ENCODERS else TRAINED
    others = set(rows) - FORMS - PACKED.get(family, set()) - trained - (PARAMETERS if family in ROUTED else set())
    assert set(rows) >= trained
    assert others in ([set()] if family in STORED_AS_ANOTHER else GGUF) and set(rows) >= FORMS
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


def test_what_is_read_from_a_gguf_file_is_never_refused_in_one_type_alone():
    for family, rows in KEPT["families"].items():
        cells = [cell for form, row in rows.items() if form in GGUF[0] for cell in row.values()]
        assert not any(cell.startswith("refused") for cell in cells), family


def test_an_adapter_beside_a_model_in_half_precision_loses_no_digit():
    for rows in KEPT["families"].values():
        assert {cell for form in ADAPTERS[:4] for cell in rows[form].values()} == {"equal"}
