"""Results as tables: every number once with its labels, and the parts that are said to sum do."""

import numpy as np
import pytest

import duat_jax as duat
from duat_jax import schemas
from duat_jax.display.named_arrays import as_dataframe, as_dataset, by_mark, by_name, of_tokens, whole
from duat_jax.transform.keys import Key
from tests.every_result import classes_of_results, every_result
from tests.helpers import near, relative

SUMS = {
    "Explanation": [("value", "embedding terms biases"), ("value", "collapse collapse_bias")],
    "Graph": [("value", "embedding terms biases"), ("value", "collapse collapse_bias")],
    "Contrast": [("difference", "flow moved discontinuities")],
    "Attribution": [],
    "Intervention": [("difference", "secant discontinuities")],
    "AttentionScore": [("value", "pairs")],
    "Ledger": [("difference", "inputs within patterns held discontinuities"), ("difference", "reads")],
    "LoraChange": [("difference", "embedding terms biases reader"), ("difference", "part discontinuities")],
    "ModelDiff": [("difference", "parts discontinuities")],
    "WeightLedger": [("difference", "sums"), ("difference", "parts")],
    "Influence": [
        (
            "difference",
            "examples weights rounding_of_weights rounding_of_gradients optimiser outside beginning",
        )
    ],
    "ImageMaps": [("value", "path terms biases"), ("value", "collapse collapse_bias")],
}
"""By class, which parts its arrays are said to sum to what."""


def test_every_class_has_its_sums():
    assert set(SUMS) == {kind.__name__ for kind in classes_of_results()}


@pytest.mark.slow
def test_the_rows_of_a_table_sum_to_what_is_said():
    for kind, result in every_result().items():
        table = result.to_dataframe()
        assert [table.columns[0], table.columns[-1]] == ["part", "value"]
        for value, parts in SUMS[kind.__name__]:
            rows = table[table.part.isin(parts.split())]
            if kind.__name__ == "Contrast":
                rows = rows[rows.row.isna() | (rows.row == "embedding")]
            if kind.__name__ == "LoraChange":
                rows = rows[rows.column.isna() | (rows.column != "base")]
            near(rows.value.sum(), getattr(result, value), within=1e-4)


@pytest.mark.slow
def test_a_row_stands_at_its_labels():
    explanation = next(result for kind, result in every_result().items() if kind.__name__ == "Explanation")
    key = list(explanation.terms)[3]
    table = explanation.to_dataframe()
    row = table[(table.part == "terms") & (table.mark == str(key)) & (table.token_index == 2) & (table.neuron == 5)]
    assert float(row.value.item()) == float(explanation.terms[key][2, 5])
    assert row.token.item() == explanation.tokens[2] and row.layer.item() == key.layer == 3
    found = explanation.to_xarray().terms.sel(terms_mark=str(key), token_index=2, neuron=5)
    assert float(found) == float(explanation.terms[key][2, 5])
    assert str(found.token.item()) == explanation.tokens[2] and int(found.terms_layer) == 3


@pytest.mark.slow
def test_a_data_set_has_the_numbers_of_the_table():
    for result in every_result().values():
        table, found = result.to_dataframe(), result.to_xarray()
        assert set(found.data_vars) == set(table.part)
        for part, values in found.data_vars.items():
            rows = table.value[table.part == part]
            relative(float(np.abs(values).sum()), float(rows.abs().sum()), within=1e-5)
            assert int(values.notnull().sum()) == len(rows)


@pytest.mark.slow
def test_json_is_read_as_the_record_of_its_kind():
    for result in every_result().values():
        assert type(schemas.read(result.to_json())) in schemas.KINDS


def test_parts_of_other_shapes_stand_in_one_table():
    keys = [Key(("layers.0",), "mlp", 0), Key(("layers.1",), "mlp", 0), Key((), "last", 0)]
    widths = [np.ones((2, 3)), np.ones((2, 1)), np.ones((2, 2))]
    arrays = [
        whole("embedding", [1.0, 2.0], of_tokens(["a", "a"])),
        *by_mark("terms", dict(zip(keys, widths, strict=True)), of_tokens(["a", "a"]), "neuron"),
        *by_name("discontinuities", {}),
    ]
    table, found = as_dataframe(arrays), as_dataset(arrays)
    assert list(table.columns) == ["part", "token_index", "token", "mark", "layer", "neuron", "value"]
    assert len(table) == 2 + 6 + 2 + 4 and table.value.sum() == 15
    assert table.layer.dropna().tolist() == [0] * 6 + [1] * 2
    assert found.terms.dims == ("terms_mark", "token_index", "neuron") and found.terms.shape == (3, 2, 3)
    assert np.isnan(found.terms.sel(terms_mark="layers.1.mlp", neuron=2)).all() and float(found.terms.sum()) == 12


def test_a_missing_package_is_named(monkeypatch):
    for package, method in (("pandas", as_dataframe), ("xarray", as_dataset)):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(duat.DuatError, match=rf"{package}.*: pip install 'pandas>="):
            method([])
