"""Tokenizers of every layout that published checkpoints have, with the settings that can stand beside them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

KEPT = Path(__file__).parent / "tokenizer_ids.json"
"""The reference's token ids (`python -m tests.parity.goldens`)."""

TEXTS = (
    "Hello Paris",
    " hello  world",
    "Café héllo, cafe",
    "hello</s>hello [SEP] hello<|user|>hello <|user|> hello",
    "東京 tokyo 東",
    "x = 12345 + 67",
    "a\tb\n\nc   d\r\n",
    "don't we'll ''hi``",
    "hello<mask> [MASK] <unk>[UNK]x",
    "ﬁne é ² …",
)
PAIR = ("hello Paris", "Café x")


class Layout(NamedTuple):
    """A checkpoint's family, the class of its tokenizer, its `tokenizer.json`, and its special tokens."""

    family: str
    name: str | None
    make: Callable[[], Tokenizer]
    special: dict[str, str]


def _byte_pairs(special: list[str], **model: Any) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(special)}
    for character in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab.setdefault(character, len(vocab))
    merges = [("h", "e"), ("he", "l"), ("hel", "l"), ("hell", "o"), ("Ġ", "hello"), ("1", "2"), ("12", "3"), ("Ġ", "x")]
    merges += [("Ã", "©"), ("Ġ", "1"), ("H", "ello"), ("e", "Ì"), ("'", "'"), ("o", "n"), ("n", "'"), ("Ġ", "Ġ")]
    merges = [
        pair for pair in merges if all(half in vocab for half in pair) or pair[0] in ("he", "hel", "hell", "12", "Ġ")
    ]
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, merges, **model))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return _special(tokenizer, special)


def _special(tokenizer: Tokenizer, special: list[str]) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(token, lstrip="ask" in token) for token in special])
    return tokenizer


def _around(tokenizer: Tokenizer, *ends: str) -> Tokenizer:
    """Put tokens before and after each text."""
    first, last = (*ends, None, None)[:2]
    single = [*([first] if first else []), "$A", *([last] if last else [])]
    numbers = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys(ends)]
    pair = [*single, *([f"{first}:1"] if first else []), "$B:1", *([f"{last}:1"] if last else [])]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=numbers)
    return tokenizer


def _words(lower: bool = True) -> Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = ["hello", "world", "Hello", "##s", "paris", "Paris", "12345", "cafe", "café", "Café", *"bcdhx=+1,.'`a"]
    words += ["don", "t"]
    words += ["東京", "東", "京", "tokyo", "hi", "##llo", "he", "##é"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(special + words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return _around(_special(tokenizer, special), "[CLS]", "[SEP]")


def _sentencepiece(special: list[str], prefixed: bool = True) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(special)}
    for i in range(256):
        vocab[f"<0x{i:02X}>"] = len(vocab)
    for character in "▁abcdefghijklmnopqrstuvwxyzHPC'=+,0123456789":
        vocab[character] = len(vocab)
    merges = [
        ("▁", "h"),
        ("▁h", "e"),
        ("l", "l"),
        ("▁he", "ll"),
        ("▁hell", "o"),
        ("h", "e"),
        ("he", "ll"),
        ("hell", "o"),
    ]
    merges += [("▁", "x"), ("▁", "▁"), ("1", "2"), ("▁", "1")]
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefixed else spaces
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefixed else []))
    return _special(tokenizer, special)


def _unigrams(special: list[str], unknown: str, first: str, last: str) -> Tokenizer:
    pieces = ["▁", "▁hello", "▁Hello", "hello", "▁paris", "▁Paris", "▁x", "ca", "▁ca", "fé", "12", "▁caf", "▁cafe"]
    pieces += list("éefhloabcdx123=+東京")
    vocab = [(token, 0.0) for token in special] + [(piece, -3.0 - i / 7) for i, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(vocab, special.index(unknown), False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    return _around(_special(tokenizer, special), first, last)


def _llama3() -> Tokenizer:
    tokenizer = _byte_pairs(["<unk>", "<s>", "</s>"], ignore_merges=True)
    split = pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?\p{L}+|\s+|[^\s\p{L}\p{N}]+"), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    return _around(tokenizer, "<s>")


def _digits() -> Tokenizer:
    tokenizer = _byte_pairs(["<|endoftext|>", "<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), tokenizer.pre_tokenizer])
    return tokenizer


_BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
_ENDS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_END = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_OF_ROBERTA = _ENDS | {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
_ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
_OF_ALBERT = _BERT | {"bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "<unk>", "pad_token": "<pad>"}
_GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
_OF_GEMMA = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
_SP = ["<unk>", "<s>", "</s>"]
_COHERE = ["<PAD>", "<UNK>", "<CLS>", "<SEP>", "<MASK_TOKEN>", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"]
_OF_COHERE = {
    "bos_token": "<BOS_TOKEN>",
    "eos_token": "<|END_OF_TURN_TOKEN|>",
    "unk_token": "<UNK>",
    "pad_token": "<PAD>",
}
_QWEN = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": None, "bos_token": None}

LAYOUTS = {
    "bert": Layout("bert", "BertTokenizer", _words, _BERT),
    "bert, cased": Layout("bert", "BertTokenizerFast", lambda: _words(lower=False), _BERT),
    "distilbert": Layout("distilbert", "DistilBertTokenizer", _words, _BERT),
    "roberta": Layout(
        "roberta", "RobertaTokenizer", lambda: _around(_byte_pairs(_ROBERTA), "<s>", "</s>"), _OF_ROBERTA
    ),
    "xlm-roberta": Layout(
        "xlm-roberta", "XLMRobertaTokenizer", lambda: _unigrams(_ROBERTA, "<unk>", "<s>", "</s>"), _OF_ROBERTA
    ),
    "albert": Layout("albert", "AlbertTokenizer", lambda: _unigrams(_ALBERT, "<unk>", "[CLS]", "[SEP]"), _OF_ALBERT),
    "gpt2": Layout("gpt2", "GPT2Tokenizer", lambda: _byte_pairs(["<|endoftext|>"]), _END),
    "opt": Layout(
        "opt", "GPT2Tokenizer", lambda: _around(_byte_pairs(_ROBERTA), "</s>"), _ENDS | {"bos_token": "</s>"}
    ),
    "phi": Layout("phi", "CodeGenTokenizer", lambda: _byte_pairs(["<|endoftext|>"]), _END),
    "gpt_neox": Layout("gpt_neox", "GPTNeoXTokenizerFast", lambda: _byte_pairs(["<|endoftext|>", "<|padding|>"]), _END),
    "gpt_neox, ends": Layout(
        "gpt_neox", "GPTNeoXTokenizer", lambda: _around(_byte_pairs(["<|endoftext|>"]), "<|endoftext|>"), _END
    ),
    "starcoder2": Layout("starcoder2", "GPT2Tokenizer", _digits, _END),
    "smollm": Layout("llama", "GPT2Tokenizer", _digits, _END),
    "llama": Layout("llama", "LlamaTokenizer", lambda: _around(_sentencepiece(_SP), "<s>"), _ENDS),
    "llama, byte-level": Layout("llama", "LlamaTokenizerFast", _llama3, _ENDS),
    "llama3": Layout("llama", "PreTrainedTokenizerFast", _llama3, _ENDS),
    "code_llama": Layout("llama", "CodeLlamaTokenizer", lambda: _around(_sentencepiece(_SP), "<s>"), _ENDS),
    "mistral": Layout("mistral", "LlamaTokenizer", lambda: _around(_sentencepiece(_SP), "<s>"), _ENDS),
    "phi3": Layout("phi3", "LlamaTokenizer", lambda: _around(_sentencepiece(_SP), "<s>"), _ENDS),
    "gemma": Layout("gemma2", "GemmaTokenizer", lambda: _around(_sentencepiece(_GEMMA, False), "<bos>"), _OF_GEMMA),
    "qwen2": Layout("qwen2", "Qwen2Tokenizer", lambda: _byte_pairs(["<|endoftext|>"]), _QWEN),
    "qwen3": Layout("qwen3", "Qwen2Tokenizer", lambda: _byte_pairs(["<|endoftext|>"]), _QWEN),
    "cohere": Layout("cohere", "CohereTokenizerFast", lambda: _around(_byte_pairs(_COHERE), "<BOS_TOKEN>"), _OF_COHERE),
    "modernbert": Layout(
        "modernbert", "PreTrainedTokenizerFast", lambda: _around(_byte_pairs(_ROBERTA), "<s>", "</s>"), _OF_ROBERTA
    ),
}
"""A tokenizer of each class, of the families that it is published with."""


SAME = {
    "BertTokenizer": ["ConvBertTokenizer", "ElectraTokenizer", "LayoutLMTokenizerFast"],
    "RobertaTokenizer": ["LongformerTokenizerFast"],
    "LlamaTokenizer": ["Phi3Tokenizer"],
}
"""Other names of a class, by its own."""


def _of(size: int, name: str, **flags: bool) -> dict[str, Any]:
    return {
        str(size): {"content": name, "lstrip": False, "normalized": False, "rstrip": False, "special": False} | flags
    }


def settings(layout: Layout, size: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield by name the files that can stand beside a tokenizer.

    Args:
        layout: the layout.
        size: the number of its tokens.
    """
    base = layout.special | {"tokenizer_class": layout.name}
    yield "no file", {}
    yield "plain", {"tokenizer_config.json": base}
    switches = ["do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space", "split_special_tokens"]
    switches += ["legacy", "keep_accents", "add_bos_token", "add_eos_token", "clean_up_tokenization_spaces"]
    for name in switches:
        for value in (False, True):
            yield f"{name} {value}", {"tokenizer_config.json": base | {name: value}}
    yield "no prefix, legacy", {"tokenizer_config.json": base | {"add_prefix_space": False, "legacy": True}}
    for flags in ({}, {"special": True}, {"lstrip": True, "rstrip": True}, {"normalized": True}, {"single_word": True}):
        name = ", ".join(["added_tokens_decoder", *flags])
        yield name, {"tokenizer_config.json": base | {"added_tokens_decoder": _of(size, "<|user|>", **flags)}}
    decoder = _of(size + 7, "<|user|>") | _of(size, "hello") | _of(0, "x")
    yield "added_tokens_decoder in disorder", {"tokenizer_config.json": base | {"added_tokens_decoder": decoder}}
    decoder = {i: token for token in layout.special.values() if token for i in [str(len(token))]}
    decoder = {i: {"content": token, "rstrip": True, "special": True} for i, token in decoder.items()}
    yield "other flags", {"tokenizer_config.json": base | {"added_tokens_decoder": decoder}}
    for name in ("additional_special_tokens", "extra_special_tokens"):
        yield name, {"tokenizer_config.json": base | {name: ["<|user|>", "hello"]}}
    yield "named extra tokens", {"tokenizer_config.json": base | {"extra_special_tokens": {"user_token": "<|user|>"}}}
    named = {"tokenizer_config.json": base | {"model_specific_special_tokens": {"user_token": "<|user|>"}}}
    yield "model_specific_special_tokens", named
    yield "padding", {"tokenizer_config.json": base, "padding": "hello"}
    yield "a token of its own name", {"tokenizer_config.json": base | {"user_token": "<|user|>"}}
    typed = {"__type": "AddedToken", "content": "<|user|>", "lstrip": True, "special": True}
    yield "typed token", {"tokenizer_config.json": base | {"pad_token": typed}}
    yield "another pad token", {"tokenizer_config.json": base | {"pad_token": "<|user|>"}}
    yield (
        "special_tokens_map.json",
        {
            "tokenizer_config.json": base,
            "special_tokens_map.json": {"pad_token": {"content": "<|user|>", "rstrip": True}},
        },
    )
    yield (
        "special_tokens_map.json, extra",
        {
            "tokenizer_config.json": base,
            "special_tokens_map.json": {"additional_special_tokens": ["<|user|>"]},
        },
    )
    yield "added_tokens.json", {"tokenizer_config.json": base, "added_tokens.json": {"<|user|>": size, "hello": 1}}
    yield (
        "files beside added_tokens_decoder",
        {
            "tokenizer_config.json": base | {"added_tokens_decoder": _of(size, "Paris")},
            "special_tokens_map.json": {"pad_token": "<|user|>"},
            "added_tokens.json": {"<|user|>": size},
        },
    )
    names = ("PreTrainedTokenizerFast", "TokenizersBackend", "OwnTokenizer", "GPT2TokenizerFast", None)
    for name in (*names, *SAME.get(layout.name or "", [])):
        yield f"class {name}", {"tokenizer_config.json": layout.special | {"tokenizer_class": name}}
    yield "class in config.json", {"config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}
    yield "unsupported class", {"tokenizer_config.json": base | {"tokenizer_class": "T5Tokenizer"}}


def write(folder: Path, layout: Layout, files: dict[str, Any]) -> None:
    """Write a checkpoint's tokenizer with the files beside it, and its family.

    Args:
        folder: where they are written.
        layout: the layout.
        files: the contents of the other files; of `padding` the token of the tokenizer's own padding.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = layout.make()
    if padding := files.pop("padding", None):
        tokenizer.enable_padding(pad_token=padding)
    tokenizer.save(str(folder / "tokenizer.json"))
    files = files | {"config.json": {"model_type": layout.family, "vocab_size": 500} | files.get("config.json", {})}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def checkpoints(folder: Path, layout: Layout) -> Iterator[tuple[str, Path]]:
    """Yield a directory for each setting of a layout by its name.

    Args:
        folder: where they are written.
        layout: the layout.
    """
    for i, (name, files) in enumerate(settings(layout, layout.make().get_vocab_size())):
        write(folder / str(i), layout, files)
        yield name, folder / str(i)


def packed(found: dict[str, list[list[int]] | None]) -> dict[str, Any]:
    """Return the token ids of a layout's settings with equal ones written once.

    Args:
        found: the token ids of each text by the setting's name; `None` where there is no such tokenizer.
    """
    distinct = list(dict.fromkeys(" ".join(map(str, row)) for rows in found.values() for row in rows or []))
    number = {row: i for i, row in enumerate(distinct)}
    return {
        "ids": distinct,
        "settings": {name: rows and [number[" ".join(map(str, row))] for row in rows] for name, rows in found.items()},
    }


def unpacked(kept: dict[str, Any]) -> dict[str, list[list[int]] | None]:
    """Return the token ids of a layout's settings.

    Args:
        kept: what `packed` returns.
    """
    rows = [[int(number) for number in row.split()] for row in kept["ids"]]
    return {name: numbers and [rows[i] for i in numbers] for name, numbers in kept["settings"].items()}
