"""The tokenizer of a GGUF file."""

import warnings
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
import pytest
from command import run
from containers import GATED, TOKENS, add_tokenizer, as_stored, decoder, write_gguf
from damaged import copy_checkpoint

import duat_jax as duat
from duat_jax.models.checkpoint.gguf_tokenizer import SPLITS, read_gguf_tokenizer
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


COMPOSING = "command-r", "qwen2", "deepseek-r1-qwen", "stablelm2", "mpt", "olmo"
"""The tokenizers that compose characters; the others leave them as they are."""

TEXT = "I'm HTTPServer's naïve 12345é $5.00!!\n\n//x  end你好カナ x'LL ٣٤ \u0301a"

PIECES = {
    "gpt-2": "I|'m| HTTPServer|'s| naïve| 12345|é| $|5|.|00|!!|\n|\n|//|x| | end你好カナ| x|'|LL| ٣٤| \u0301|a",
    "command-r": "I|'m| HTTPServer|'s| naïve| |1|2|3|4|5|é| $|5|.|0|0|!!|\n|\n|//|x| | end你好カナ"
    "| x|'|LL| |٣|٤| \u0301|a",
    "dbrx": "I|'m| HTTPServer|'s| naïve| |123|45|é| $|5|.|00|!!\n\n|//|x| | end你好カナ| x|'LL| |٣٤| \u0301|a",
    "tekken": "I|'m| HTTPServer|'s| naïve| |1|2|3|4|5|é| $|5|.|0|0|!!\n\n//|x| | end你好カナ| x|'LL| |٣|٤| \u0301a",
    "gpt-4o": "I'm| HTTPServer's| naïve| |123|45|é| $|5|.|00|!!\n\n//|x| | end你好カナ| x'LL| |٣٤| \u0301a",
    "deepseek-v3": "I|'m| HTTPServer|'s| naïve| |123|45|é| $|5|.|00|!!\n\n|//|x| | end|你好カナ| x|'LL| |٣٤| \u0301a",
    # Of the bytes e4 bd a0 e5 a5 bd, bd becomes the character ½, which counts as a digit.
    "falcon": "I|'|m| HTTPServer|'|s| naïve| |123|45|é| |$|5|.|00|!!|\n\n|//|x| | end".encode()
    + b"\xe4|\xbd|\xa0\xe5\xa5|\xbd|"
    + "カナ| x|'|LL| ٣٤| \u0301|a".encode(),
}


@pytest.mark.parametrize("kind", PIECES)
def test_a_text_is_split_as_the_tokenizer_of_that_name_does(kind):
    own = bytes(range(33, 127)) + bytes(range(161, 173)) + bytes(range(174, 256))
    rest = [byte for byte in range(256) if byte not in own]
    to_byte = {chr(byte): byte for byte in own} | {chr(256 + i): byte for i, byte in enumerate(rest)}
    pieces = [
        bytes(map(to_byte.__getitem__, piece)) for piece, _ in SPLITS[kind].pre_tokenizer().pre_tokenize_str(TEXT)
    ]
    expected = PIECES[kind] if kind == "falcon" else PIECES[kind].encode()
    assert pieces == expected.split(b"|") and b"".join(pieces) == TEXT.encode()


@pytest.mark.parametrize(
    ("names", "like"),
    [
        (("phi-2",), "gpt-2"),
        (("starcoder", "refact", "codeshell"), "smollm"),
        (("llama3", "llama-v3", "falcon3"), "llama-bpe"),
        (("smaug-bpe",), "dbrx"),
        (("deepseek-r1-qwen", "stablelm2"), "qwen2"),
        (("olmo",), "mpt"),
        (("llama4",), "gpt-4o"),
    ],
)
def test_names_of_one_rule_split_alike(names, like):
    """As they do in the source of llama.cpp, `src/llama-vocab.cpp`."""
    assert all(SPLITS[name] == SPLITS[like] for name in names)


def test_a_tokenizer_of_tekken_keeps_whole_tokens_and_begins_texts(tmp_path):
    tokenizer = tokenizer_of(tmp_path, kind="tekken")
    assert tokenizer.encode("xyz").tokens == ["<|end|>", "xyz"]
    assert tokenizer_of(tmp_path, kind="command-r").encode("xyz").tokens == ["x", "y", "z"]


@pytest.mark.parametrize("kind", SPLITS)
def test_characters_are_composed_where_the_tokenizer_of_that_name_does(tmp_path, kind):
    tokenizer = tokenizer_of(tmp_path, kind=kind)
    ids = tokenizer.encode("e\u0301", add_special_tokens=False).ids
    assert tokenizer.decode(ids) == ("\u00e9" if kind in COMPOSING else "e\u0301")


@pytest.mark.parametrize("size", [None, len(TOKENS), len(TOKENS) - 1])
def test_a_vocabulary_alone_has_a_tokenizer(tmp_path, size):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "falcon")  # no architecture that is loaded
    add_tokenizer(writer, "falcon")
    if size is not None:
        writer.add_vocab_size(size)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    if size == len(TOKENS) - 1:
        with pytest.raises(duat.BadCheckpoint, match="they belong to two models"):
            duat.load_tokenizer(tmp_path / "a.gguf")
        return
    assert duat.load_tokenizer(tmp_path / "a.gguf").encode("the 1234").tokens == ["t", "he", "Ġ", "123", "4"]
    with pytest.raises(duat.BadCheckpoint, match="falcon"):
        duat.load_config(tmp_path / "a.gguf")


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


def merged_by_scores(text, scores, own):
    """Return the pieces of a text as SentencePiece defines them.

    The longest of a user's own tokens stand as they are; then the leftmost of the neighbours with the best merger.
    """
    symbols, rest = [], text.replace(" ", "▁")
    while rest:
        length = max((len(token) for token in own if rest.startswith(token)), default=0)
        symbols.append((rest[: length or 1], not length))
        rest = rest[length or 1 :]
    while True:
        mergers = [
            (-scores[a + b], i)
            for i, ((a, free), (b, also)) in enumerate(pairwise(symbols))
            if free and also and a + b in scores
        ]
        if not mergers:
            return [piece for piece, _ in symbols]
        _, i = min(mergers)
        symbols[i : i + 2] = [(symbols[i][0] + symbols[i + 1][0], True)]


@pytest.mark.parametrize("space", [" ", "▁"])
def test_gemmas_tokens_are_merged_as_sentencepiece_does(space):
    random = np.random.default_rng(0)
    own = [space * n for n in (2, 3, 4)] + ["\n", "\n\n", "<b>"]
    pieces = list("▁abcn<>")
    merged = set(pieces)
    while len(merged) < 60:
        a, b = random.choice(sorted(merged), 2)
        merged |= {a + b} if len(a + b) < 7 and "▁▁" not in a + b and "<b>" not in a + b else set()
    learned = sorted(merged - set(pieces), key=lambda piece: (len(piece), piece))
    order = random.permutation(len(learned))
    scores = {piece: -float(place) for piece, place in zip(learned, order, strict=True)}
    first = ["<pad>", "<eos>", "<bos>", "<unk>"]
    tokens = [*first, *(f"<0x{i:02X}>" for i in range(256)), *own, *pieces, *learned]
    tokenizer = sentencepiece(
        tokens=tokens,
        scores=np.array([-1000.0] * (260 + len(own) + len(pieces)) + list(scores.values()), np.float32),
        token_type=np.array([3, 3, 3, 2] + [6] * 256 + [4] * len(own) + [1] * (len(pieces) + len(learned))),
        bos_token_id=2,
        unknown_token_id=3,
        add_space_prefix=False,
    )
    spelled = [token.replace(" ", "▁") for token in own]
    for _ in range(500):
        text = "".join(random.choice([*" abcn<>\n", "  ", "<b>"], 14))
        expected = merged_by_scores(text, scores, spelled)
        encoded = tokenizer.encode(text)
        assert [token.replace(" ", "▁") for token in encoded.tokens] == ["<bos>", *expected]
        assert tokenizer.decode(encoded.ids) == text


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tokens": [*LETTERS[:-1], "a"]}, "tokens must be distinct texts"),
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


@pytest.mark.parametrize(("size", "warned"), [(61, False), (64, False), (67, False), (68, True), (50257, True)])
def test_a_tokenizer_with_far_fewer_tokens_than_the_model_is_warned_of(tmp_path, size, warned):
    source = copy_checkpoint(tmp_path, vocab_size=size)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        duat.load_tokenizer(source)
    assert [f"embeds {size} tokens, but its tokenizer has only 61" in str(each.message) for each in raised] == [
        True
    ] * warned
    result = run("explain", "w5", "--model", source)  # its embeddings aren't as many as it says
    lines = [line for line in result.stderr.splitlines() if "has only 61: check" in line]
    assert len(lines) == warned and all(line.startswith("duat: ") for line in lines)


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
