"""Results in files: what is opened is what was saved; other files, and newer ones, are refused in one line."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

import duat_jax as duat
from duat_jax import saved
from duat_jax.forms.completeness import Completeness
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
                assert type(each.holds) is type(each.within) is type(each.says_something) is bool


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
    opened = saved.read_result(tmp_path / "x")
    assert opened["half"].dtype == jnp.bfloat16 and opened["half"].tolist() == [0, 1, 2]
    assert opened["none"].shape == (0, 2) and np.isnan(opened["nan"]) and opened["text"] == "é"


def test_a_file_without_the_contrast_of_an_effect_opens(tmp_path):
    duat.intervene(duat.load(), [5, 6, 7], duat.edits.Heads(1, 0).set(0)).save(tmp_path / "result")
    content = (tmp_path / "result").read_bytes()
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    before = head["__metadata__"]["duat"]
    head["__metadata__"]["duat"] = before.replace(', "contrast": null}}', "}}")
    assert head["__metadata__"]["duat"] != before
    written = json.dumps(head).encode()
    (tmp_path / "before").write_bytes(len(written).to_bytes(8, "little") + written + content[8 + length :])
    assert duat.open(tmp_path / "before").as_dict() == duat.open(tmp_path / "result").as_dict()


def headed(**changed):
    head = {"format": saved.FORMAT, "version": saved.VERSION, "result": {"tuple": []}} | changed
    return save({}, {"duat": json.dumps(head)})


@pytest.mark.parametrize(
    "content, says",
    [
        (headed(version=saved.VERSION + 1), f"opens version {saved.VERSION}: install a newer duat-jax"),
        (headed(version=1), f"opens version {saved.VERSION}: compute and save the result again"),
        (headed(format="another"), "no file that a result's save wrote"),
        (headed(result={"type": "os:system", "fields": {"command": "true"}}), "no file that"),
        (headed(result={"array": "7"}), "no file that"),
        (save({"a": np.ones(2)}), "no file that"),
        (b"", "no file that"),
        (b'{"kind": "audit"}', "is JSON: duat.records.read"),
        (b"\xff" * 64, "no file that"),
        (headed()[:-5], "no file that"),
    ],
)
def test_other_files_are_refused(tmp_path, content, says):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(duat.BadText, match=says):
        duat.open(tmp_path / "x")


def test_a_file_that_isnt_there(tmp_path):
    with pytest.raises(duat.BadText, match="No such file"):
        duat.open(tmp_path / "x")
    with pytest.raises(OSError, match="No such file"):
        duat.explain(duat.load(), [5, 6]).save(tmp_path / "no" / "folder")
