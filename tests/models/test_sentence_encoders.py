"""A sentence encoder's similarity is pooled as its checkpoint states, or refused in one line."""

import json
import math
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from adapters import random_adapters
from cases import ENCODER, GOLDEN
from helpers import close, described
from safetensors.numpy import save_file

import duat_jax as duat
from duat_jax.inputs.question import ask
from duat_jax.lora import save_merged
from duat_jax.weights.validation import alike_models

TEXT, OTHER = [5, 17, 3, 44, 20], [9, 8, 7, 6]
POOLED = {
    "cls": lambda x: x[0],
    "max": lambda x: x.max(0),
    "mean": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / np.sqrt(len(x)),
    "weightedmean": lambda x: np.arange(1, len(x) + 1) @ x / np.arange(1, len(x) + 1).sum(),
    "lasttoken": lambda x: x[-1],
}
FLAGS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
NAMED = {f"pooling_mode_{flag}": mode for flag, mode in zip(FLAGS, POOLED, strict=True)}
STATED = {
    **{mode: {"pooling_mode_mean_tokens": mode == "mean", flag: True} for flag, mode in NAMED.items()},
    "cls mean": {"pooling_mode_cls_token": True},
    "max lasttoken": {"pooling_mode": ["max", "lasttoken"]},
    "lasttoken ": {"pooling_mode": "lasttoken", "embedding_dimension": 12, "include_prompt": True},
}
KINDS = ("models.Transformer", "models.Pooling", "models.Normalize")


ACTIVATIONS = {
    "linear.Identity": lambda z: z,
    "activation.Tanh": np.tanh,
    "activation.ReLU": lambda z: np.maximum(z, 0),
    "activation.GELU": lambda z: z * np.vectorize(math.erfc)(-z / math.sqrt(2)) / 2,
    "activation.SiLU": lambda z: z / (1 + np.exp(-z)),
}
DENSE = (*KINDS[:2], "models.Dense", "models.Dense", "models.Normalize")


def dense_modules(folder, activation, *, bias=True, features=12, **changed):
    """Write two Dense modules of an encoder, and return what they compute."""
    random, steps = np.random.default_rng(1), []  # by which no vector is zero: that has no cosine
    for path, inputs, outputs in (("2_Dense", features, 7), ("3_Dense", 7, 5)):
        tensors = {"linear.weight": random.normal(size=(outputs, inputs))} | (
            {"linear.bias": random.normal(size=outputs)} if bias else {}
        )
        settings = {"in_features": inputs, "out_features": outputs, "bias": bias}
        settings |= {"activation_function": f"torch.nn.modules.{activation}"} | changed
        (folder / path / "config.json").write_text(json.dumps(settings))
        save_file(tensors, folder / path / "model.safetensors")
        steps.append(tensors)

    def vector(pooled):
        for each in steps:
            pooled = ACTIVATIONS[activation](each["linear.weight"] @ pooled + each.get("linear.bias", 0))
        return pooled

    return vector


def encoder_of(folder, pooling, kinds=KINDS):
    """Make a sentence encoder of a golden BERT, and return its directory."""
    shutil.copytree(GOLDEN / "bert", folder, dirs_exist_ok=True)
    paths = ["", *(f"{i}_{kind.rpartition('.')[2]}" for i, kind in enumerate(kinds[1:], 1))]
    modules = [
        {"idx": i, "path": path, "type": f"sentence_transformers.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)
        if path.endswith("Pooling"):
            (folder / path / "config.json").write_text(json.dumps(pooling))
    return folder


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("stated", STATED)
def test_every_mode_is_the_cosine_of_pooled_hidden_states_and_its_parts_sum_to_it(tmp_path, stated):
    model = duat.load(encoder_of(tmp_path, STATED[stated]), dtype=jnp.float64)
    pooled = [
        np.concatenate([POOLED[mode](np.asarray(model(jnp.array(ids)))) for mode in stated.split()])
        for ids in (TEXT, OTHER)
    ]
    found = duat.explain(model, TEXT, against=OTHER)
    close(found.value, cosine(*pooled))
    assert found.completeness.verdict == found.collapse_completeness.verdict == "holds"
    contrasted = duat.contrast(model, TEXT, [5, 17, 9, 44, 2], against=OTHER)
    assert contrasted.completeness.verdict == "holds"
    assert model.config.pooling.label() in str(found.target)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_dense_layers_are_those_of_numpy_and_a_covector_reads_them(tmp_path, activation, bias):
    folder = encoder_of(tmp_path, {"pooling_mode": ["cls", "mean"]}, DENSE)
    vector = dense_modules(folder, activation, bias=bias, features=24)
    pooling, random, real = duat.load_config(folder).pooling, np.random.default_rng(1), jnp.arange(6) < 5
    x, u = random.normal(size=(6, 12)), random.normal(size=5)
    expected = vector(np.concatenate([x[0], x[:5].mean(0)]))
    close(pooling(jnp.asarray(x), real), expected)
    covector, constant = pooling.transposed(jnp.asarray(u), jnp.asarray(x), real)
    close((covector * x).sum() + constant, u @ expected, layers=5)
    assert pooling.has_bias == bias and (constant != 0) == bias
    name = activation.partition(".")[2].lower().replace("identity", "")
    for sizes in ("24 to 7", "7 to 5"):
        assert f"dense layer from {sizes}{f' with {name}' if name else ''}" in pooling.label()


@pytest.mark.parametrize(
    "activation", ["activation.Tanh", *(pytest.param(each, marks=pytest.mark.slow) for each in ACTIVATIONS)]
)
def test_parts_of_a_cosine_through_dense_layers_sum_to_it(tmp_path, activation):
    folder = encoder_of(tmp_path, {}, DENSE)
    vector = dense_modules(folder, activation)
    model = duat.load(folder, dtype=jnp.float64)
    found = duat.explain(model, TEXT, against=OTHER)
    close(found.value, cosine(*(vector(np.asarray(model(jnp.array(ids))).mean(0)) for ids in (TEXT, OTHER))))
    assert found.completeness.verdict == found.collapse_completeness.verdict == "holds"
    parts = found.embedding.sum() + sum(part.sum() for part in found.terms.values()) + sum(found.biases.values())
    close(parts, found.value, layers=20)
    assert "pooling.bias" in map(str, found.biases) and model.config.pooling.label() in str(found.target)


@pytest.mark.slow
def test_every_question_sums_through_dense_layers(tmp_path):
    folder = encoder_of(tmp_path, {}, DENSE)
    dense_modules(folder, "activation.Tanh")
    model = duat.load(folder, dtype=jnp.float64)
    for found in (
        duat.contrast(model, TEXT, [5, 17, 9, 44, 2], against=OTHER),
        duat.graph(model, TEXT, against=OTHER, top_neurons=2, top_heads=0),
        duat.intervene(model, TEXT, duat.edits.Heads(1, 1).set(0), against=OTHER),
    ):
        assert found.completeness.verdict == "holds"


BAD_DENSE = {
    "an activation": ({"activation_function": "torch.nn.modules.activation.Mish"}, "Mish' isn't supported"),
    "a field": ({"gain": 2}, "the field 'gain' isn't known"),
    "a size": ({"out_features": "7"}, "out_features must be a whole number from 1, not '7'"),
    "other weights": ({"out_features": 8}, r"must hold .*'linear.weight': \[8, 12\].*, as config.json states"),
    "another vector": ({"module_input_name": "token_embeddings"}, "only sentence_embedding is"),
}


@pytest.mark.parametrize("case", BAD_DENSE)
def test_a_dense_layer_that_is_not_supported_is_refused_in_one_line(tmp_path, case):
    changed, message = BAD_DENSE[case]
    folder = encoder_of(tmp_path, {}, DENSE)
    dense_modules(folder, "activation.Tanh", **changed)
    with pytest.raises(duat.InvalidInput, match=message) as raised:
        duat.explain(duat.load(folder), TEXT, against=OTHER)
    assert "\n" not in str(raised.value)


def test_a_dense_layer_of_another_width_is_refused(tmp_path):
    folder = encoder_of(tmp_path, {"pooling_mode": ["cls", "mean"]}, DENSE)
    dense_modules(folder, "activation.Tanh")
    with pytest.raises(duat.InvalidInput, match="the dense layer from 12 to 7 with tanh after the pooling is given 24"):
        duat.explain(duat.load(folder), TEXT, against=OTHER)


def test_merging_keeps_the_weights_of_modules(tmp_path):
    folder = encoder_of(tmp_path / "encoder", {}, DENSE)
    dense_modules(folder, "activation.Tanh")
    model = duat.load(folder)
    save_merged(tmp_path / "merged", random_adapters(model, ["query"]), model, folder)
    assert (
        duat.load(tmp_path / "merged").config.pooling
        == model.config.pooling
        != duat.load(GOLDEN / "bert").config.pooling
    )


WRONG = {
    "a module": ({}, (*KINDS[:2], "models.LSTM"), "the module 'LSTM' isn't supported"),
    "a dense layer first": ({}, (KINDS[0], "models.Dense", KINDS[1]), "must be a Transformer, then one Pooling"),
    "a norm before a dense layer": ({}, (*KINDS, "models.Dense"), "then Dense layers, and Normalize at last"),
    "a dense layer without weights": ({}, (*KINDS[:2], "models.Dense"), "2_Dense/config.json"),
    "no pooling": ({}, KINDS[:1], "must be a Transformer, then one Pooling"),
    "no mode": ({"pooling_mode_mean_tokens": False}, KINDS, "no mode is true"),
    "a mode": ({"pooling_mode": "median"}, KINDS, "pooling_mode 'median' isn't one of"),
    "a flag": ({"pooling_mode_cls_token": "yes"}, KINDS, "must be true or false, not 'yes'"),
    "prompts": ({"include_prompt": False}, KINDS, "include_prompt = False isn't supported"),
    "a field": ({"shift": 1}, KINDS, "the field 'shift' isn't known"),
    "no object": ([], KINDS, "must be an object of fields"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_pooling_that_is_not_supported_is_refused_where_texts_are_compared(tmp_path, case):
    pooling, kinds, message = WRONG[case]
    model = duat.load(encoder_of(tmp_path, pooling, kinds))
    with pytest.raises(duat.InvalidInput, match=message) as raised:
        duat.explain(model, TEXT, against=OTHER)
    assert "\n" not in str(raised.value)


def test_a_published_encoder_set_to_its_first_token_is_read_there(tmp_path):
    folder = shutil.copytree(ENCODER, tmp_path / "model")
    file = folder / "1_Pooling" / "config.json"
    stated = json.loads(file.read_text()) | {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    file.write_text(json.dumps(stated))
    model = duat.load(folder)
    tokenizer = model.tokenizer
    texts = ("A cat sits on the mat", "A dog lies on the rug")
    first, other = (np.asarray(model(jnp.array(tokenizer.encode(text).ids)))[0] for text in texts)
    found = duat.explain(model, texts[0], against=texts[1], tokenizer=tokenizer)
    close(found.value, cosine(first, other))
    assert str(found.target) == f"cosine similarity to {texts[1].lower()!r} (first token)"


TEXT_FILES = {
    "a prompt": (
        {"config_sentence_transformers.json": {"prompts": {"query": "query: "}, "default_prompt_name": "query"}},
        "default_prompt_name = 'query' isn't supported: set it to null, and write the prompt, 'query: ', before",
    ),
    "an unknown prompt": ({"config_sentence_transformers.json": {"default_prompt_name": "a"}}, "default_prompt_name"),
    "lower case": ({"sentence_bert_config.json": {"do_lower_case": True}}, "do_lower_case = True isn't supported"),
    "no object": ({"sentence_bert_config.json": []}, "must be an object of fields"),
}


@pytest.mark.parametrize("case", TEXT_FILES)
def test_an_encoder_that_reads_other_texts_than_it_is_given_is_refused_where_texts_are_compared(tmp_path, case):
    files, message = TEXT_FILES[case]
    folder = encoder_of(tmp_path, STATED["cls"])
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    with pytest.raises(duat.InvalidInput, match=message) as raised:
        duat.explain(duat.load(folder), TEXT, against=OTHER)
    assert "\n" not in str(raised.value)


LENGTHS = {
    "its own": ({"sentence_bert_config.json": {"max_seq_length": 4}}, 4),
    "by an old name": ({"sentence_xlm-roberta_config.json": {"max_seq_length": 4}}, 4),
    "the tokenizer's": ({"tokenizer_config.json": {"model_max_length": 4}}, 4),
    "null": ({"sentence_bert_config.json": {"max_seq_length": None}, "tokenizer_config.json": {}}, None),
    "the first": (
        {"sentence_bert_config.json": {"max_seq_length": 5}, "tokenizer_config.json": {"model_max_length": 4}},
        5,
    ),
    "zero": (
        {"sentence_bert_config.json": {"max_seq_length": 0}, "tokenizer_config.json": {"model_max_length": 4}},
        None,
    ),
    "no end": ({"tokenizer_config.json": {"model_max_length": 10**30}}, None),
    "no number": ({"sentence_bert_config.json": {"max_seq_length": "4"}}, "must be a whole number, not '4'"),
}
"""Files and the number of tokens that `SentenceTransformer(...).preprocess` of sentence-transformers 6.2 reads."""


@pytest.mark.parametrize("case", LENGTHS)
def test_a_text_that_sentence_transformers_cuts_is_refused_with_both_numbers(tmp_path, case):
    files, longest = LENGTHS[case]
    folder = encoder_of(tmp_path, STATED["cls"])
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    config = duat.load_config(folder)
    for texts, label in (((TEXT, OTHER), "the text"), ((OTHER, TEXT), "the other text")):
        if longest == 5 or longest is None:
            ask(described(config), texts[0], against=texts[1])
            continue
        wanted = longest if isinstance(longest, str) else f"{label} has 5 tokens, and sentence-transformers reads 4"
        with pytest.raises(duat.InvalidInput, match=wanted) as raised:
            ask(described(config), texts[0], against=texts[1])
        assert "\n" not in str(raised.value)


def test_encoders_that_read_texts_of_other_lengths_are_compared_on_texts_that_both_read_whole(tmp_path):
    models = []
    for longest in (5, 4):
        folder = encoder_of(tmp_path / str(longest), STATED["mean"])
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
        models.append(duat.load(folder))
    for first, second in (models, models[::-1]):
        alike = alike_models(first, second)
        ask(described(alike[0].config), OTHER, against=OTHER)
        with pytest.raises(duat.InvalidInput, match="5 tokens, and sentence-transformers reads 4"):
            ask(described(alike[0].config), TEXT, against=OTHER)


def test_a_tokenizer_that_makes_letters_small_itself_may_be_given_small_ones(tmp_path):
    folder = shutil.copytree(ENCODER, tmp_path / "model")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 512, "do_lower_case": true}')
    prompts = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "document"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    assert duat.load_config(folder).pooling.problem is None
