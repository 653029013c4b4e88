"""Results in files: what is opened is what was saved; other files, and newer ones, are refused in one line."""

import json
import random
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

import duat_jax as duat
from duat_jax import saved
from duat_jax.forms.completeness import Completeness
from duat_jax.sealed import seal, unseal
from duat_jax.training import begin, follow
from tests.every_result import classes_of_results, every_result


@pytest.fixture(scope="module")
def results():
    return every_result()


def rounded(value):
    """Return plain data with numbers to five digits."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items() if key != "error"}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return f"{value:.5g}" if isinstance(value, float) else value


@pytest.mark.slow
def test_every_class_of_results_is_here(results):
    assert classes_of_results() == set(results)


@pytest.mark.slow
def test_what_is_opened_is_what_was_saved(results, tmp_path):
    for kind, result in results.items():
        result.save(tmp_path / "result")
        opened = duat.open(tmp_path / "result")
        assert type(opened) is kind and str(opened) == str(result) and repr(opened) == repr(result)
        # Products round differently where arrays lie in another order in memory.
        assert rounded(opened.as_dict()) == rounded(result.as_dict())
        if hasattr(result, "plot"):
            assert opened.plot().get_suptitle() == result.plot().get_suptitle()


def completeness_in(value):
    if isinstance(value, Completeness):
        return [value]
    parts = value if isinstance(value, list | tuple) else getattr(value, "__dict__", {}).values()
    return [each for part in parts for each in completeness_in(part)]


@pytest.mark.slow
def test_numbers_of_completeness_are_numpys_and_truth_values_pythons(results, tmp_path):
    for kind, result in results.items():
        result.save(tmp_path / "result")
        for where in (result, duat.open(tmp_path / "result")):
            found = completeness_in(where)
            assert found or kind.__name__ == "Attribution"
            for each in found:
                assert {type(number) for number in each[:5]} == {each.value.dtype.type}, kind
                assert type(each.holds) is type(each.within) is type(each.conclusive) is bool


@pytest.mark.slow
def test_what_needs_the_model_says_so(results, tmp_path):
    (score,) = (result for kind, result in results.items() if kind.__name__ == "AttentionScore")
    score.save(tmp_path / "result")
    source = next(source for source in score.query_sources if source.term is not None)
    with pytest.raises(duat.DuatError, match="ask the model again"):
        duat.open(tmp_path / "result").neurons(source, score.key_sources[0])


def test_a_class_of_ones_own_is_refused_when_it_is_saved(tmp_path):
    class Mine(Completeness):
        """A part that no module of the package has."""

    with pytest.raises(duat.DuatError, match="Mine can't be kept"):
        saved.write_result((Mine(1, 1, 0, 1, 1),), tmp_path / "result")
    assert not list(tmp_path.iterdir())


def test_dtypes_and_numbers_that_arent_finite_stay(tmp_path):
    values = {"half": jnp.arange(3, dtype=jnp.bfloat16), "none": np.zeros((0, 2)), "nan": float("nan"), "text": "é"}
    saved.write_result(values, tmp_path / "x")
    opened = duat.open(tmp_path / "x")
    assert opened["half"].dtype == jnp.bfloat16 and opened["half"].tolist() == [0, 1, 2]
    assert opened["none"].shape == (0, 2) and np.isnan(opened["nan"]) and opened["text"] == "é"


def edited(content, edit):
    """Return a file with its head and arrays changed, and a digest that is right again."""
    head, arrays, _ = unseal(content)
    text, arrays = edit(json.dumps(head), arrays)
    return seal(arrays, json.loads(text))


def test_a_file_without_the_contrast_of_an_effect_opens(tmp_path):
    duat.intervene(duat.load(), [5, 6, 7], duat.edits.Heads(1, 0).set(0)).save(tmp_path / "result")
    content = (tmp_path / "result").read_bytes()
    before = edited(content, lambda text, arrays: (text.replace(', "contrast": null}}', "}}"), arrays))
    assert len(before) < len(content)
    (tmp_path / "before").write_bytes(before)
    assert duat.open(tmp_path / "before").as_dict() == duat.open(tmp_path / "result").as_dict()


@pytest.mark.parametrize(
    ("ask", "old", "new"),
    [
        (lambda model: duat.contrast(model, [5, 6, 7], [5, 9, 7]), "others", "references"),
        (lambda model: duat.attribute(model, [5, 6, 7], [5, 9, 7]), "others", "references"),
        (lambda model: duat.explain_attention(model, [5, 6], layer=1, head=0, key=0), "versus", "contrast"),
        (lambda model: duat.intervene(model, [5, 6, 7], duat.edits.Heads(1, 0).set(0)), "change", "edit"),
    ],
)
def test_a_file_with_an_old_name_of_a_field_opens(tmp_path, ask, old, new):
    ask(duat.load()).save(tmp_path / "result")
    before = edited(
        (tmp_path / "result").read_bytes(), lambda text, arrays: (text.replace(f'"{new}":', f'"{old}":'), arrays)
    )
    (tmp_path / "before").write_bytes(before)
    assert f'"{old}":'.encode() in before.replace(b"\\", b"")
    assert duat.open(tmp_path / "before").as_dict() == duat.open(tmp_path / "result").as_dict()


def product(w):
    return w["a"] ** 2 * w["b"]


def weight_ledger():
    first, second = ({"a": jnp.array(a), "b": jnp.array(b)} for a, b in ((1.0, 2.0), (3.0, 1.5)))
    return follow(product, begin(product, first), second)


def test_a_result_of_the_version_without_digests_opens_with_a_warning():
    with pytest.warns(UserWarning, match="saved by an older duat-jax, without a digest"):
        opened = duat.open(Path(__file__).with_name("saved_version_4.safetensors"))
    assert opened.completeness[0].verdict == "holds" and opened.values.tolist() == [2, 13.5]
    assert opened.sums == weight_ledger().sums


def test_a_changed_bit_is_refused_or_changes_nothing(tmp_path):
    weight_ledger().save(tmp_path / "result")
    content, chosen = (tmp_path / "result").read_bytes(), random.Random(0)
    opened, refused = 0, set()
    for _ in range(400):
        changed, place = bytearray(content), chosen.randrange(len(content))
        changed[place] ^= 1 << chosen.randrange(8)
        (tmp_path / "changed").write_bytes(changed)
        try:
            saved.write_result(duat.open(tmp_path / "changed"), tmp_path / "again")
        except duat.InvalidInput as error:
            refused.add(str(error))
        else:
            opened += 1
            assert (tmp_path / "again").read_bytes() == content
    assert opened < 40 and any("digest" in each for each in refused)


def test_an_edited_number_isnt_believed_even_with_a_right_digest(tmp_path):
    result = weight_ledger()
    result.save(tmp_path / "result")
    head, arrays, _ = unseal((tmp_path / "result").read_bytes())
    fields = head["result"]["fields"]
    (completeness,) = fields["completeness"]["tuple"]
    parts = [*(part for _, part in fields["sums"]["items"]), fields["discontinuities"]]
    for edited, verdict in [
        *((part, "fails") for part in [completeness["fields"]["value"], *parts]),
        *((completeness["fields"][name], "holds") for name in ("sum", "error")),
    ]:
        (name,) = edited.values()
        (tmp_path / "edited").write_bytes(seal(arrays | {name: np.asarray(arrays[name] + 3)}, head))
        (judged,) = duat.open(tmp_path / "edited").completeness
        assert judged.verdict == verdict and (verdict == "fails" or (judged,) == result.completeness)


@pytest.mark.slow
def test_an_edited_sum_of_any_result_fails(results, tmp_path):
    for kind, result in results.items():
        result.save(tmp_path / "result")
        content = (tmp_path / "result").read_bytes()
        assert b"duat_jax." not in content, kind
        head, arrays, _ = unseal(content)
        for fields in completeness_fields(head["result"]):
            names = [fields[name]["array"] for name in ("value", "sum")]
            step = 1 + abs(float(arrays[fields["largest"]["array"]]))
            moved = {name: np.asarray(arrays[name] + step, arrays[name].dtype) for name in names}
            (tmp_path / "edited").write_bytes(seal(arrays | moved, head))
            judged = completeness_in(duat.open(tmp_path / "edited"))
            assert [each for each in judged if each.verdict == "fails"], kind


def completeness_fields(value):
    if isinstance(value, list):
        return [each for part in value for each in completeness_fields(part)]
    if not isinstance(value, dict):
        return []
    own = [value["fields"]] if value.get("type") == "completeness" else []
    return own + [each for part in value.values() for each in completeness_fields(part)]


def headed(**changed):
    head = {"format": saved.FORMAT, "version": saved.VERSION, "result": {"tuple": []}} | changed
    return seal({}, head)


@pytest.mark.parametrize(
    "content, says",
    [
        (headed(version=saved.VERSION + 1), f"opens version {saved.VERSION}: install a newer duat-jax"),
        (headed(version=1), f"opens version {saved.VERSION}: compute and save the result again"),
        (headed(format="another"), "no file that a result's save wrote"),
        (headed(result={"type": "os:system", "fields": {"command": "true"}}), "no file that"),
        (headed(result={"array": "7"}), "no file that"),
        (save({"a": np.ones(2)}), "no file that"),
        (seal({}, {"run": 0}), "no file that"),
        (save({}, {"duat": json.dumps({"format": saved.FORMAT, "version": saved.VERSION})}), "digest that contradict"),
        (b"", "no file that"),
        (b'{"kind": "audit"}', "is JSON: duat.schemas.read"),
        (b"\xff" * 64, "no file that"),
        (headed()[:-5], "no file that"),
    ],
)
def test_other_files_are_refused(tmp_path, content, says):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(duat.InvalidInput, match=says):
        duat.open(tmp_path / "x")


def test_a_file_that_isnt_there(tmp_path):
    with pytest.raises(duat.InvalidInput, match="No such file"):
        duat.open(tmp_path / "x")
    with pytest.raises(OSError, match="No such file"):
        duat.explain(duat.load(), [5, 6]).save(tmp_path / "no" / "folder")
