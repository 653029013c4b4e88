"""Results in files: what is opened is what was saved; other files, and newer ones, are refused in one line."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

import duat_jax as duat
from duat_jax import saved
from duat_jax.display.result import Displayed
from duat_jax.forms.completeness import Completeness
from duat_jax.in_context import ledger, question_of
from duat_jax.interpret.images.result import ImageMaps
from duat_jax.lora import lora_change, new_adapters

TEXT, OTHER = "for i in range(10", "for j in range(10"


@pytest.fixture(scope="module")
def results():
    """A result of every class that shows itself."""
    model, tokenizer = duat.load(tokenizer=True)
    known = {"tokenizer": tokenizer}
    question = question_of(tokenizer, ["a = 1", "b = 1"], "c =", " 1")
    image = duat.image_maps(lambda x: duat.hold(x.mean(), "mean") * x.sum(), jnp.ones((1, 3, 4)))
    changes = [duat.edits.Heads(1, 0).set(0), duat.edits.Stream(2).scale(0.5)]
    made = [
        duat.explain(model, TEXT, **known),
        duat.contrast(model, TEXT, [OTHER, "mean"], **known),
        duat.attribute(model, TEXT, OTHER, unit="head", **known),
        duat.intervene(model, TEXT, changes, **known),
        duat.explain_attention(model, TEXT, layer=1, head=0, key=0, **known),
        lora_change(model, new_adapters(model, rank=1), tokenizer.encode(TEXT).ids, **known),
        ledger(model, question.task),
        image,
    ]
    return {type(result): result for result in made}


def rounded(value):
    """Return plain data with numbers to five digits."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items() if key != "error"}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return f"{value:.5g}" if isinstance(value, float) else value


def classes(of):
    return [of, *(each for child in of.__subclasses__() for each in classes(child))]


@pytest.mark.slow
def test_every_class_of_results_is_here(results):
    shown = {each for each in classes(Displayed) if each.__module__.endswith(".result")}
    assert {each for each in shown if each.__module__ != Displayed.__module__} <= set(results)


@pytest.mark.slow
def test_what_is_opened_is_what_was_saved(results, tmp_path):
    for kind, result in results.items():
        result.save(tmp_path / "result")
        opened = duat.open(tmp_path / "result")
        assert type(opened) is kind and str(opened) == str(result) and repr(opened) == repr(result)
        if kind is not ImageMaps:
            names = () if kind.__name__ == "Ledger" else ("a model",)
            # Products round differently where arrays lie in another order in memory.
            assert rounded(opened.as_dict(*names)) == rounded(result.as_dict(*names))
        if hasattr(result, "plot"):
            assert opened.plot().get_suptitle() == result.plot().get_suptitle()


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


def headed(**changed):
    head = {"format": saved.FORMAT, "version": 1, "result": {"tuple": []}} | changed
    return save({}, {"duat": json.dumps(head)})


@pytest.mark.parametrize(
    "content, says",
    [
        (headed(version=2), "newer than 1: install a newer duat-jax"),
        (headed(format="another"), "no file that a result's save wrote"),
        (headed(result={"type": "os:system", "fields": {"command": "true"}}), "no file that"),
        (headed(result={"array": "7"}), "no file that"),
        (save({"a": np.ones(2)}), "no file that"),
        (b"", "no file that"),
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
