"""A list of texts has an answer for each, by every function that reads texts."""

import inspect
from functools import partial

import pytest
from adapters import random_adapters
from cases import GOLDEN
from helpers import near

import duat_jax as duat

TEXTS = [[5, 17, 3], [9, 4, 8, 11]]
ASKED = {
    "explain": lambda model, ids: duat.explain(model, ids, 7),
    "contrast": lambda model, ids: duat.contrast(model, ids, duat.baselines.Mean(), 7),
    "attribute": lambda model, ids: duat.attribute(model, ids, target=7, method="gradient x input"),
    "graph": lambda model, ids: duat.graph(model, ids, 7, top_neurons=0, top_heads=0),
    "explain_attention": lambda model, ids: duat.explain_attention(model, ids, layer=1, head=0, key=0),
    "intervene": lambda model, ids: duat.intervene(model, ids, duat.edits.Heads(1, 0).set(0), 7),
    "lora.lora_change": lambda model, ids: duat.lora.lora_change(model, random_adapters(model, ["c_fc"]), ids, 7),
}


def number_of(result):
    """Return the number that a result splits."""
    return float(result.view().value)


@pytest.mark.parametrize("name", ASKED)
def test_a_list_of_texts_has_an_answer_for_each(name):
    model = duat.load(GOLDEN / "gpt2")
    answers = ASKED[name](model, TEXTS)
    assert isinstance(answers, list) and len(answers) == len(TEXTS)
    alone = [number_of(ASKED[name](model, ids)) for ids in TEXTS]
    near([number_of(each) for each in answers], alone, within=1e-4)
    assert abs(alone[0] - alone[1]) > 1e-3
    with pytest.raises(duat.InvalidInput, match="(input|text) 1.* 999"):
        ASKED[name](model, [TEXTS[0], [999]])


@pytest.mark.parametrize("ask", [duat.contrast, partial(duat.attribute, method="contributions")])
def test_as_many_references_as_texts_could_be_pairs(ask):
    model, others = duat.load(GOLDEN / "gpt2"), [[5, 18, 3], [9, 4, 7, 11]]
    with pytest.raises(duat.InvalidInput, match="2 inputs and as many references could be pairs.*with its own refer"):
        ask(model, TEXTS, others, target=7) if ask is duat.contrast else ask(model, TEXTS, reference=others, target=7)


def test_every_function_that_reads_one_text_reads_many():
    functions = {name: getattr(duat, name) for name in dir(duat)} | {"lora.lora_change": duat.lora.lora_change}
    reads = {
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and "OneInput" in str(inspect.signature(function).parameters.get("inputs"))
    }
    assert reads - {"diff"} == ASKED.keys()
