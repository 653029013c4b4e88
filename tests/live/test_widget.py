"""The widget of a notebook answers like the server."""

import json
import sys

import msgspec
import pytest
from cases import GOLDEN

import duat_jax as duat
from duat_jax.display.examples import Example, Examples
from duat_jax.display.page.data import page_data

TEXT = "for i in range(10"


def asked(page, **questions):
    """Return all that a widget sends for explanations, by number what is asked of each."""
    sent = []
    page.send = sent.append
    for number, question in questions.items():
        page._handle_custom_msg({"number": number.strip("_"), "question": {"ask": "explain", **question}}, [])
    return sent


def shown_examples(model, tokenizer, **options):
    """Return the texts that a widget shows of each neuron."""
    *_, answer = asked(duat.widget(model, **options), _1={"text": TEXT, "target": "):"})
    return json.loads(msgspec.json.encode(answer))["view"].get("examples", {})


def test_the_kernel_answers_with_progress_before():
    model = duat.load()
    tokenizer = model.tokenizer
    page = duat.widget(model, TEXT, name="embedded")
    sent = asked(page, _7={"text": TEXT, "target": "):"}, _8={"text": ""})
    *told, answer = [each for each in sent if each["number"] == "7"]
    assert [each["progress"] for each in told][:2] == ["reading the texts", "explaining"]
    expected = duat.explain(model, TEXT, "):", tokenizer=tokenizer).view()
    assert answer["view"]["target"] == expected.target
    assert len(json.loads(msgspec.json.encode(answer))["view"]["rows"]) == 7
    assert "empty" in sent[-1]["problem"] and sent[-1]["number"] == "8"
    assert page.about["text"] == TEXT and ":host" in page.style and "export function render" in page._esm


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_the_embedded_models_neurons_have_the_texts_of_its_survey(dtype):
    model = duat.load(dtype=dtype)
    tokenizer = model.tokenizer
    explanation = duat.explain(model, TEXT, "):", tokenizer=tokenizer)
    expected = page_data(explanation.view(), duat.survey.examples())["examples"]
    assert expected and shown_examples(model, tokenizer) == msgspec.to_builtins(expected)


def test_another_models_neurons_have_the_texts_that_are_given_and_else_none():
    """The other model is the embedded one with one number changed, as training changes it."""
    model = duat.load()
    tokenizer = model.tokenizer
    bias = model.stack.blocks[0].mlp.output.bias
    bias[...] = bias[...].at[0].add(1.0)
    assert shown_examples(model, tokenizer) == {}
    example = Example("a", "token", "z", 1.0)
    given = Examples("", "gpt2", 1, {layer: [[example]] * 768 for layer in range(6)})
    texts = shown_examples(model, tokenizer, examples=given)
    assert texts and all(of_neuron == [["a", "token", "z", 1.0]] for of_neuron in texts.values())
    with pytest.raises(duat.DuatError, match="examples are of a model of another family"):
        duat.widget(model, examples=Examples("", "llama", 1, given.layers))


def test_images_and_a_missing_package_are_refused(monkeypatch):
    with pytest.raises(duat.DuatError, match="call duat.explain for images"):
        duat.widget(duat.load(GOLDEN / "vit"), duat.load_tokenizer())
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(duat.DuatError, match="duat.widget needs .* pip install 'anywidget>="):
        duat.widget(duat.load())
