"""Pages: what they are given sums, is the result's, and stands in the file; the site's are of the module as it is."""

import base64
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

import duat_jax as duat
from duat_jax.display.page.data import TOP, largest_units
from duat_jax.display.page.document import document, module_of_page
from duat_jax.display.view import numbers
from tests.every_result import result_of
from tests.helpers import near

ROOT = Path(__file__).parent.parent.parent
MODULE = ROOT / "duat_jax" / "display" / "page"
OF_LAYERS = [duat.results.Explanation, duat.results.Graph, duat.results.Contrast]
OF_TOKENS = [*OF_LAYERS, duat.results.Intervention, duat.results.ModelDiff]


def read(html):
    """Return the data of a page of one result."""
    kept = re.search(r'id="numbers">"([^"]*)"', html)[1]
    (view,) = json.loads(gzip.decompress(base64.b64decode(kept)))["views"]
    return view


@pytest.mark.parametrize("kind", OF_TOKENS)
def test_rows_and_what_is_added_sum_to_the_value(kind):
    result = result_of(kind)
    view = read(result.to_html())
    sums = [sum(row["parts"]) for row in view["rows"]]
    added = sum(part for each in view["added"] for _, part in each["entries"])
    value, tolerance = view["value"], view["completeness"]["tolerance"]
    assert value == result.view().value
    if view["row_sums"]:
        near(sums[0] + added, value, 4 * tolerance)
        assert view["beside"] or all(abs(each - value) <= 4 * tolerance for each in sums)
    else:
        near(sum(sums) + added, value, 4 * tolerance)


def test_both_sides_of_a_contrast_are_named_on_its_page_and_on_screen():
    contrast = result_of(duat.results.Contrast)
    view, shown = read(contrast.to_html()), str(contrast)
    names = ["A: the text", *(each.name for each in contrast.references), "B: the mean of the references"]
    assert [each["name"] for each in view["said"]] == names and view["value_name"] == "A − B"
    assert all(name in shown for name in names) and shown.count("A − B") == 2


def test_a_changes_units_sum_to_its_cell():
    result = result_of(duat.results.Intervention)
    view = read(result.to_html())
    (effects,) = view["tables"]
    assert [row[0] for row in effects["rows"]] == [effect.edit for effect in result.effects]
    for row, effect in zip(view["rows"], result.effects, strict=True):
        near(sum(row["parts"]), float(effect.secant.sum()), 1e-5)
        (units,) = row["units"]
        if effect.units is None:
            assert units is None
            continue
        for token, top in enumerate(units["top"]):
            near(sum(entry[1] for entry in top) + units["rest"][token], row["parts"][token], 1e-5)
            assert {entry[0] for entry in top} <= set(effect.units)


@pytest.mark.parametrize("kind", OF_LAYERS)
def test_neurons_and_their_rest_sum_to_the_cell(kind):
    result = result_of(kind)
    view = read(result.to_html())
    place = [each["name"] for each in view["kinds"]].index("neuron")
    found = [row["units"][place] for row in view["rows"] if row["units"][place]]
    assert len(found) == result_layers(result)
    result = result.explanation if isinstance(result, duat.results.Graph) else result
    of_layer = result.terms if isinstance(result, duat.results.Explanation) else result.neurons
    for units, parts in zip(found, of_layer.values(), strict=True):
        for token, (top, rest) in enumerate(zip(units["top"], units["rest"], strict=True)):
            assert len(top) == TOP
            near(sum(entry[1] for entry in top) + rest, float(parts[token].sum()), 1e-5)
            assert all(entry[1] == pytest.approx(float(parts[token, int(entry[0])]), rel=1e-6) for entry in top)
            assert abs(top[0][1]) == pytest.approx(float(np.abs(parts[token]).max()), rel=1e-6)


def result_layers(result):
    """Return how many layers a result has."""
    result = result.explanation if isinstance(result, duat.results.Graph) else result
    return len(result.terms) if isinstance(result, duat.results.Explanation) else len(result.flow) - 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_have_the_digits_of_their_dtype(dtype):
    given = np.random.default_rng(0).standard_normal((3, 4)).astype(dtype)
    np.testing.assert_array_equal(np.array(numbers(given)).astype(dtype), given)
    assert max(len(repr(each)) for row in numbers(given) for each in row) <= (16 if dtype == np.float32 else 25)


def test_few_units_have_no_rest():
    units = largest_units(np.array([[1.0, -3.0, 2.0]]))
    assert units == {"top": [[[1, -3.0], [2, 2.0], [0, 1.0]]], "rest": [0.0]}


@pytest.mark.parametrize("given", ["yesterday", "", "nan", "1e30"])
def test_a_wrong_date_of_a_build_is_a_sentence(given, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", given)
    with pytest.raises(duat.DuatError, match=f"SOURCE_DATE_EPOCH, the date of a page, is '{given}': set it to"):
        document([])


def test_the_module_and_its_style_are_small():
    assert len(module_of_page().encode()) + len((MODULE / "page.css").read_bytes()) <= 100_000


def test_the_modules_files_call_what_they_import_by_its_own_name():
    """The files stand in a page as one, without their imports."""
    imports = re.findall(r"^import .*", "\n".join(path.read_text() for path in MODULE.glob("*.js")), re.MULTILINE)
    assert imports and not [line for line in imports if " as " in line or not line.endswith(";")]


@pytest.mark.parametrize("page", ["explanation", "contrast", "capital"])
def test_the_sites_pages_have_the_module_as_it_is(page):
    """After a change of the module run `python -m experiments.live_pages`."""
    html = (ROOT / "docs" / "live" / f"{page}.html").read_text(encoding="utf-8")
    assert len(html) <= 1_000_000
    for part in (module_of_page(), (MODULE / "page.css").read_text(encoding="utf-8")):
        assert part in html
    assert read(html)["completeness"]["verdict"] == "holds"


def test_no_character_of_a_text_stands_in_the_file_as_it_is():
    model = duat.load()
    tokenizer = model.tokenizer
    html = duat.explain(model, "</script><b>&", tokenizer=tokenizer).to_html()
    assert html.count("</script>") == 2 and "<b>" not in html


def test_the_largest_units_of_a_token_have_their_own_numbers():
    random = np.random.default_rng(0)
    parts, factors = (random.normal(size=(3, 100 * TOP)).astype(np.float32) for _ in range(2))
    for token, entries in enumerate(largest_units(parts, factors)["top"]):
        units = [unit for unit, _, _ in entries]
        assert units == np.argsort(-np.abs(parts[token]), kind="stable")[:TOP].tolist()
        near([part for _, part, _ in entries], parts[token, units], within=1e-6)
        near([factor for _, _, factor in entries], factors[token, units], within=1e-6)
