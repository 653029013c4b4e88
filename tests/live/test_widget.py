"""The widget of a notebook answers like the server."""

import json
import sys

import msgspec
import pytest
from cases import GOLDEN

import duat_jax as duat
from duat_jax.interpret.explain.page import view

TEXT = "for i in range(10"


def test_the_kernel_answers_with_progress_before():
    model, tokenizer = duat.load(tokenizer=True)
    page = duat.widget(model, tokenizer, TEXT, name="embedded")
    sent = []
    page.send = sent.append
    page._handle_custom_msg({"number": "7", "question": {"ask": "explain", "text": TEXT, "target": "):"}}, [])
    page._handle_custom_msg({"number": "8", "question": {"ask": "explain", "text": ""}}, [])
    *told, answer = [each for each in sent if each["number"] == "7"]
    assert [each["progress"] for each in told][:2] == ["reading the texts", "explaining"]
    expected = view(duat.explain(model, TEXT, "):", tokenizer=tokenizer))
    assert answer["view"]["target"] == expected.target
    assert len(json.loads(msgspec.json.encode(answer))["view"]["rows"]) == 7
    assert "empty" in sent[-1]["problem"] and sent[-1]["number"] == "8"
    assert page.about["text"] == TEXT and ":host" in page.style and "export function render" in page._esm


def test_images_and_a_missing_package_are_refused(monkeypatch):
    with pytest.raises(duat.DuatError, match="call duat.explain for images"):
        duat.widget(duat.load(GOLDEN / "vit"), duat.load_tokenizer())
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(duat.DuatError, match=r"pip install 'duat-jax\[widget\]'"):
        duat.widget(*duat.load(tokenizer=True))
