"""The tokenizer that a model carries."""

import shutil

import jax
import numpy as np
import pytest
from cases import GOLDEN
from tokenizers import normalizers

import duat_jax as duat
from duat_jax.circuits import draw
from duat_jax.models.checkpoint.place import EMBEDDED
from duat_jax.models.mesh import divide
from duat_jax.models.untied import untied
from duat_jax.pruning.layers import remove_layers
from duat_jax.weights.rounded import rounded

TEXT = "for i in range(10"


@pytest.fixture(scope="module")
def model():
    return duat.load()


def test_a_text_is_read_by_the_models_own_tokenizer(model):
    tokenizer = duat.load_tokenizer()
    of_text = duat.explain(model, TEXT, "):")
    of_ids = duat.explain(model, tokenizer.encode(TEXT).ids, tokenizer.token_to_id("):"))
    assert of_text.tokens == of_ids.tokens and of_text.tokens[0] == "for"
    np.testing.assert_array_equal(of_text.collapse, of_ids.collapse)


def test_a_given_tokenizer_reads_in_its_place(model):
    upper = duat.load_tokenizer()
    upper.normalizer = normalizers.Lowercase()
    assert duat.explain(model, TEXT.upper(), tokenizer=upper).tokens == duat.explain(model, TEXT).tokens
    other = duat.load()
    other.tokenizer = upper
    assert duat.explain(other, TEXT.upper()).tokens == duat.explain(model, TEXT).tokens


def test_weights_of_models_with_different_tokenizers_have_one_structure(model):
    other = duat.load()
    other.tokenizer = duat.load_tokenizer(add_special_tokens=False)
    assert jax.tree.structure(model) == jax.tree.structure(other)
    moved = jax.tree.map(lambda one, another: one + 0 * another, other, model)
    assert moved.tokenizer is other.tokenizer is not model.tokenizer


IDS = np.arange(40, dtype=np.int32).reshape(2, 20)
MADE = {
    "adapted": lambda model: duat.lora.adapt(model, duat.lora.new_adapters(model, rank=1)),
    "merged": lambda model: duat.lora.merge(model, duat.lora.new_adapters(model, rank=1)),
    "pruned": lambda model: duat.pruning.prune(model, IDS, 0.5),
    "without layers": lambda model: remove_layers(model, IDS, [2, 3]),
    "without terms": lambda model: duat.pruning.without(model, duat.pruning.Terms(neurons={0: [1, 2]})),
    "rounded": lambda model: rounded(model, 4),
    "untied": untied,
    "divided": lambda model: divide(model, jax.sharding.Mesh(np.array(jax.devices()[:1]), ("model",))),
}


@pytest.mark.parametrize("name", MADE)
def test_a_model_that_is_made_of_another_has_its_tokenizer(name):
    model = duat.load()
    model.tokenizer = upper = duat.load_tokenizer()
    upper.normalizer = normalizers.Lowercase()
    assert duat.explain(MADE[name](model), TEXT.upper()).tokens == duat.explain(model, TEXT).tokens


def test_without_a_tokenizer_tokens_are_numbers_and_a_text_is_refused_with_the_reason(tmp_path):
    folder = shutil.copytree(EMBEDDED, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    model = duat.load(folder)
    assert duat.explain(model, [5, 6, 7]).tokens == ("5", "6", "7")
    questions = (lambda: duat.explain(model, TEXT), lambda: duat.contrast(model, TEXT, [5]), lambda: model.tokenizer)
    for question in questions:
        with pytest.raises(duat.BadCheckpoint, match="no tokenizer.json"):
            question()


def test_a_model_from_no_checkpoint_says_how_to_give_it_a_tokenizer():
    made = duat.models.Transformer(duat.load_config(GOLDEN / "gpt2"), rngs=None)
    with pytest.raises(duat.BadCheckpoint, match=r"comes from no checkpoint .*set model.tokenizer"):
        duat.explain(made, TEXT)


def test_the_old_argument_and_the_old_order_still_work(model):
    with pytest.warns(FutureWarning, match="model.tokenizer, which every loaded model has") as seen:
        loaded, tokenizer = duat.load(tokenizer=True)
    assert seen[0].filename == __file__ and loaded.tokenizer is tokenizer
    with pytest.warns(FutureWarning, match=r"draw\(model, …, tokenizer=…\)") as seen:
        old = draw(model, tokenizer, "parameter", 2)
    assert seen[0].filename == __file__ and old.cases == draw(model, "parameter", 2).cases


def test_a_warning_about_the_tokenizer_names_the_users_line():
    model = duat.load(GOLDEN / "qwen2")
    with pytest.warns(UserWarning, match="Qwen2Tokenizer needs BPE") as seen:
        duat.explain(model, [5, 6, 7])
    assert seen[0].filename == __file__
