"""The tokenizer of a GGUF file."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from containers import GATED, TOKENS, add_tokenizer, as_stored, decoder, write_gguf
from damaged import copy_checkpoint

import duat_jax as duat
from duat_jax.models.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from duat_jax.models.checkpoint.place import open_checkpoint


def tokenizer_of(tmp_path, architecture="llama", kind="smollm", **keys):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", architecture)
    add_tokenizer(writer, kind)
    for key, value in keys.items():
        (writer.add_bool if isinstance(value, bool) else writer.add_string)(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return open_checkpoint(tmp_path / "a.gguf").tokenizer()


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("gpt-2", "Ġthe Ġ 123 4 a 's ' S x y z Ġ Ã ©"),
        ("smollm", "Ġthe Ġ 1 2 3 4 a 's ' S x y z Ġ Ã ©"),
        ("llama-bpe", "<|end|> Ġthe Ġ 123 4 a 's 'S xyz Ġ Ã ©"),
        ("qwen2", "Ġthe Ġ 1 2 3 4 a 's 'S x y z Ġ Ã ©"),
    ],
)
def test_a_text_is_split_as_the_file_says(tmp_path, kind, pieces):
    tokenizer = tokenizer_of(tmp_path, kind=kind)
    assert tokenizer.encode(" the 1234a's'Sxyz \u00e9").tokens == pieces.split()
    assert tokenizer.decode(tokenizer.encode(" the 1234a's'Sxyz\n\n\u00e9").ids) == " the 1234a's'Sxyz\n\n\u00e9"
    # Qwen's own tokenizer composes characters, the others leave them as they are.
    composed = tokenizer.decode(tokenizer.encode("e\u0301").ids)
    assert composed == ("\u00e9" if kind == "qwen2" else "e\u0301")


def test_tokens_of_their_own_are_found_and_texts_begin_and_end_as_the_file_says(tmp_path):
    tokenizer = tokenizer_of(tmp_path, add_bos_token=True, add_eos_token=True)
    encoded = tokenizer.encode("the<tool> the<|end|>é")
    assert encoded.tokens == ["<|end|>", "t", "he", "<tool>", "Ġthe", "<|end|>", "Ã", "©", "<|end|>"]
    assert encoded.ids[3] == len(TOKENS) - 1
    assert tokenizer.decode(encoded.ids) == "the<tool> theé"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kind": "default"}, "pre = 'default'"),
        ({"precompiled_charsmap": "x"}, "precompiled_charsmap"),
        ({"add_space_prefix": True}, "add_space_prefix = True"),
        ({"add_bos_token": "x"}, "add_bos_token = 'x' must be a bool"),
        ({"model": "bert"}, "model = 'bert' isn't supported, only gpt2, llama"),
        ({"architecture": "gemma2"}, "Gemma"),
    ],
)
def test_a_tokenizer_that_is_not_known_is_refused_by_name(tmp_path, keys, words, monkeypatch):
    if "model" in keys:
        monkeypatch.setattr(gguf.GGUFWriter, "add_tokenizer_model", lambda *_: None)
    with pytest.raises(duat.BadCheckpoint, match=words):
        tokenizer_of(tmp_path, **keys)


LETTERS = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "c", "ab", "bc", "▁a", "▁ab"]
SENTENCEPIECE = {
    "model": "llama",
    "tokens": LETTERS,
    "scores": np.array([0.0] * 259 + [-10.0] * 4 + [-2.0, -1.0, -3.0, -4.0], np.float32),
    "token_type": np.array([2, 3, 3] + [6] * 256 + [1] * 8),
    "bos_token_id": 1,
    "unknown_token_id": 0,
}


def sentencepiece(**keys):
    metadata = {f"tokenizer.ggml.{key}": value for key, value in (SENTENCEPIECE | keys).items()}
    return read_gguf_tokenizer(Path("a.gguf"), metadata)


@pytest.mark.parametrize("prefixed", [True, False])
def test_neighbours_are_merged_whose_merger_has_the_highest_score(prefixed):
    tokenizer = sentencepiece(add_space_prefix=prefixed)
    # "bc" before "ab" in the first word, where "▁ab" and "c" would do too.
    begin = ["<s>", "▁a", "bc"] if prefixed else ["<s>", "a", "bc"]
    assert tokenizer.encode("abc ab é").tokens == [*begin, "▁ab", "▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("abc ab é").ids) == "abc ab é"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tokens": [*LETTERS[:-1], "a"]}, "tokens must be texts, each another"),
        ({"tokens": [*LETTERS[:-1], "a" * 257]}, "more than 256 characters"),
        ({"token_type": np.ones(3)}, "token_type has 3 entries for 267 tokens"),
        ({"scores": np.ones(3)}, "scores has 3 entries for 267 tokens"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces = True isn't supported"),
        ({"bos_token_id": 267}, "bos_token_id = 267 is no token: there are 267"),
        ({"bos_token_id": None}, "bos_token_id must be given"),
    ],
)
def test_a_tokenizer_that_cannot_be_is_refused(keys, words):
    with pytest.raises(duat.BadCheckpoint, match=words):
        sentencepiece(**keys)


@pytest.mark.parametrize("place", ["directory", "file"])
def test_a_tokenizer_with_more_tokens_than_the_model_is_an_error(tmp_path, place):
    if place == "file":
        tensors = as_stored(decoder(GATED), permuted=True)
        source = write_gguf(tmp_path / "a.gguf", "llama", tensors, vocab_size=len(TOKENS) - 1)
        good = write_gguf(tmp_path / "b.gguf", "llama", tensors, vocab_size=len(TOKENS))
    else:
        source, good = copy_checkpoint(tmp_path, vocab_size=60), copy_checkpoint(tmp_path / "good", vocab_size=61)
    duat.load_tokenizer(good)
    with pytest.raises(duat.BadCheckpoint, match="they belong to two models"):
        duat.load_tokenizer(source)
