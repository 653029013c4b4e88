"""Small tokenizers of every layout: how a vocabulary writes spaces, bytes, inner pieces and special tokens."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from duat_jax.models.vocabulary.token_bytes import CHARACTERS

SPECIAL = ["<unk>", "<s>", "</s>"]
WORDS = ("he", "x", "hello", "def", "paris")
SIGNS = ("\n", "\t", "\x07", "\u200b", "\xa0", "·x", "⏎", "#7", "##7", "<U+000A>", "<E9>", "é", "你", "'", '"', "\\n")
"""Texts that are shown as something else, and texts that others are shown as."""


def _pieces(names):
    """Return the vocabulary of names, of all that they begin with, and the merges that make them."""
    pieces = [name[:end] for name in names for end in range(2, len(name) + 1)]
    return list(dict.fromkeys(pieces)), list(dict.fromkeys((piece[:-1], piece[-1]) for piece in pieces))


def _numbered(names):
    return {name: i for i, name in enumerate(dict.fromkeys(names))}


def byte_level(add_prefix_space=False, decoder=True, signs=SIGNS, **settings):
    texts = [text for word in WORDS for text in (f" {word}", word)] + ["  "] + list(signs)
    names, merges = _pieces("".join(CHARACTERS[byte] for byte in text.encode()) for text in texts)
    tokenizer = Tokenizer(models.BPE(_numbered([*SPECIAL, *CHARACTERS.values(), *names]), merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=False)
    if decoder:
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken("<|é|>", normalized=False), AddedToken(" y", normalized=False)])
    return tokenizer


def sentencepiece(*, metaspace=None, prepend=True, newline=False):
    texts = [text for word in WORDS for text in (f"▁{word}", word)] + ["▁▁", *SIGNS[5:]]
    names, merges = _pieces(texts)
    singles = sorted(set("".join(texts)) | ({"\n"} if newline else set()))
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    vocab = _numbered([*SPECIAL, *fallback, *singles, *names])
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if metaspace is None:
        spaces = [normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), *spaces] if prepend else spaces)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prepend else steps)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken("▁▁▁", normalized=False), AddedToken("▁<PRE>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram(lower=False):
    texts = ["▁", *(text for word in WORDS for text in (word, f"▁{word}")), *SIGNS[5:], *"abcdefghilopqrsxy"]
    scored = [(name, 0.0) for name in [*SPECIAL, "[MASK]"]]
    scored += [(name, -len(scored) - i / 100) for i, name in enumerate(dict.fromkeys(texts))]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0))
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lower else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens([*SPECIAL, AddedToken("[MASK]", lstrip=True)])
    return tokenizer


def word_piece():
    names = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"##{word}" for word in WORDS), *SIGNS[5:], "##12", "#"]
    tokenizer = Tokenizer(models.WordPiece(_numbered(names), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(names[:4])
    return tokenizer


def word_level():
    tokenizer = Tokenizer(models.WordLevel(_numbered(["[UNK]", *WORDS, *SIGNS[5:]]), unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def end_of_word():
    names, merges = _pieces(WORDS)
    ends = [(word[:-1], f"{word[-1]}</w>") for word in WORDS if len(word) > 1]
    singles = sorted(set("".join(WORDS)))
    names += [*(f"{single}</w>" for single in singles), *("".join(pair) for pair in ends)]
    vocab = _numbered(["<unk>", *singles, *names])
    tokenizer = Tokenizer(models.BPE(vocab, merges + ends, unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder("</w>")
    return tokenizer


LAYOUTS = {
    "byte-level": byte_level,
    "byte-level, a space before a text": lambda: byte_level(add_prefix_space=True),
    "byte-level, without decoder": lambda: byte_level(decoder=False),
    "byte-level, few signs": lambda: byte_level(signs=()),
    "SentencePiece": sentencepiece,
    "SentencePiece, a line break of its own": lambda: sentencepiece(newline=True),
    "SentencePiece, no space before a text": lambda: sentencepiece(prepend=False),
    "SentencePiece, Metaspace first": lambda: sentencepiece(metaspace="first"),
    "SentencePiece, Metaspace always": lambda: sentencepiece(metaspace="always"),
    "SentencePiece, Metaspace never": lambda: sentencepiece(metaspace="never", prepend=False),
    "Unigram": unigram,
    "Unigram, lower case": lambda: unigram(lower=True),
    "WordPiece": word_piece,
    "WordLevel": word_level,
    "end of word": end_of_word,
}
"""A function of each layout that makes a tokenizer."""


@cache
def layout(name):
    """Return the tokenizer of a layout."""
    return LAYOUTS[name]()
