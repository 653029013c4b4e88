"""Token ids of every tokenizer layout and setting are those of transformers' `AutoTokenizer`, or it is refused."""

import json
import warnings

import pytest
from tokenizer_layouts import KEPT, LAYOUTS, PAIR, TEXTS, checkpoints, unpacked, write

import duat_jax as duat


def _ids(folder):
    tokenizer = duat.load_tokenizer(folder)
    return [tokenizer.encode(text).ids for text in TEXTS] + [tokenizer.encode(*PAIR).ids]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_token_ids_are_the_references_for_every_setting(layout, tmp_path):
    kept, refused = unpacked(json.loads(KEPT.read_text())[layout]), set()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has only")
        for name, folder in checkpoints(tmp_path, LAYOUTS[layout]):
            try:
                assert _ids(folder) == kept[name], name
            except duat.BadCheckpoint as error:
                assert "\n" not in str(error)
                refused.add(name)
    # A class that needs another kind of vocabulary, and one that isn't known here
    assert refused <= {"unsupported class", "class GPT2TokenizerFast"}, refused


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"tokenizer_class": 3}, "tokenizer_class = 3 of tokenizer_config.json must be a text"),
        ({"tokenizer_class": "CLIPTokenizer"}, "CLIPTokenizer isn't supported"),
        ({"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["a.Own", None]}}, "'Own' is code of the checkpoint"),
        ({"do_lower_case": "no"}, "do_lower_case = 'no' must be true or false"),
        ({"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}, "fast_tokenizer_files isn't supported"),
        ({"init_inputs": ["a"]}, "init_inputs = .* isn't supported"),
        ({"added_tokens_decoder": {"a": {}}}, "added_tokens_decoder = .* must give a token for each id"),
        ({"added_tokens_decoder": {"1": {"text": "a"}}}, "is no token"),
        ({"added_tokens_decoder": {"1": "a"}}, "is no token"),
        ({"extra_special_tokens": "a"}, "extra_special_tokens = 'a' must be a list of tokens"),
        ({"pad_token": 3}, "pad_token = 3 is no token"),
        ({"extra_special_tokens": [{"__type": "AddedToken", "content": "a", "bold": True}]}, "is no token"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(files, words, tmp_path):
    write(tmp_path, LAYOUTS["bert"], {"tokenizer_config.json": files})
    with pytest.raises(duat.BadCheckpoint, match=words):
        duat.load_tokenizer(tmp_path)


def test_a_vocabulary_that_the_class_of_a_family_cannot_have_is_read_as_it_is(tmp_path):
    write(tmp_path, LAYOUTS["bert"]._replace(family="gpt2"), {})
    with pytest.warns(match="GPT2Tokenizer needs BPE, and tokenizer.json has WordPiece, which is read as it is"):
        assert duat.load_tokenizer(tmp_path).encode("hello").tokens == ["[CLS]", "hello", "[SEP]"]
