"""Texts and tokens by their strings, wherever a question takes token ids and the tokenizer is given."""

import numpy as np
import pytest
from cases import GOLDEN
from helpers import close

import duat_jax as duat
from duat_jax.edits import Neurons

TEXT, OTHER = "for i in range(10", "for j in range(10"
QUESTIONS = {
    "explain": lambda model, text, other, target, **more: duat.explain(model, text, target, **more),
    "explain, many": lambda model, text, other, target, **more: duat.explain(model, [text, other], target, **more)[1],
    "explain, a target": lambda model, text, other, target, **more: duat.explain(
        model, text, duat.targets.LogProbability(target), **more
    ),
    "contrast": lambda model, text, other, target, **more: duat.contrast(model, text, other, target, **more),
    "attribute": lambda model, text, other, target, **more: duat.attribute(
        model, text, [other, duat.baselines.Mean()], target, **more
    ),
    "intervene": lambda model, text, other, target, **more: duat.intervene(
        model, text, Neurons(0, [1]).set(0), target, **more
    ),
    "explain_attention": lambda model, text, other, target, **more: duat.explain_attention(
        model, text, layer=1, head=0, key=0, **more
    ),
}


@pytest.fixture(scope="module")
def loaded():
    model = duat.load()
    return model, model.tokenizer


def of_result(result):
    """Return the numbers of a result, whichever question it answers."""
    plain = result.as_dict("model")
    return plain.get("scores") or plain.get("by_token") or plain.get("flow") or plain["completeness"]


@pytest.mark.parametrize(
    "name", [name if name == "explain" else pytest.param(name, marks=pytest.mark.slow) for name in QUESTIONS]
)
def test_a_string_is_its_tokens(loaded, name):
    model, tokenizer = loaded
    ask = QUESTIONS[name]
    ids = [tokenizer.encode(text).ids for text in (TEXT, OTHER)]
    by_ids = ask(model, *ids, tokenizer.token_to_id("):"), tokenizer=tokenizer)
    by_text = ask(model, TEXT, OTHER, "):", tokenizer=tokenizer)
    encoded = ask(model, *map(tokenizer.encode, (TEXT, OTHER)), "):", tokenizer=tokenizer)
    assert of_result(by_text) == of_result(by_ids) == of_result(encoded)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_string_without_a_tokenizer_says_what_to_do(name):
    model = duat.load()
    model.tokenizer = None
    with pytest.raises(duat.BadCheckpoint, match="no tokenizer: give token ids, or set model.tokenizer"):
        QUESTIONS[name](model, TEXT, OTHER, 5)


def test_wrong_strings_are_named_all_at_once(loaded):
    model, tokenizer = loaded
    with pytest.raises(duat.InvalidInput, match="the text is empty.*target ' self key' is not one token but 2"):
        duat.explain(model, "", " self key", tokenizer=tokenizer)


def test_the_contrast_of_two_sentences_by_name():
    model = duat.load()
    tokenizer = model.tokenizer
    found = duat.contrast(model, TEXT, OTHER, contrast=" in", tokenizer=tokenizer)
    assert found.references[0].tokens[1] == " j" and "minus that of ' in'" in found.target.headline
    assert (
        duat.contrast(model, TEXT, duat.baselines.Mean(), tokenizer=tokenizer).references[0].name
        == "the vocabulary's mean"
    )


def test_a_model_called_with_a_list_or_a_string(loaded):
    model, tokenizer = loaded
    ids = tokenizer.encode(TEXT).ids
    close(model(ids), model(np.array(ids)))
    with pytest.raises(duat.InvalidInput, match="tokenizer.encode"):
        model(TEXT)


def test_a_target_that_the_tokenizer_doesnt_know_is_refused():
    model = duat.load(GOLDEN / "llama")
    tokenizer = model.tokenizer
    with pytest.raises(
        duat.InvalidInput, match=r"the target ' Paris' is no token: it would be read as the unknown one"
    ):
        duat.explain(model, "w3 w4", " Paris", tokenizer=tokenizer)
    assert duat.explain(model, "w3 w4", "[UNK]", tokenizer=tokenizer).target.headline.startswith("logit of '[UNK]'")
