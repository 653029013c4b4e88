"""The tokenizer classes of transformers 5, which keep the vocabulary of a `tokenizer.json` and replace the rest."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from duat_jax.models.checkpoint.tokenizer_settings import NAMES, TokenizerSettings

SPACE = "▁"
"""SentencePiece's character for a space."""

SpecialTokens = Mapping[str, AddedToken | str | None]


def _byte_pairs(tokenizer: Tokenizer, **given: Any) -> Tokenizer:
    """Return a tokenizer of the same merges without the other settings of their model."""
    model = tokenizer.model
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        raise ValueError("its class has no prefix of inner pieces and no suffix of words, tokenizer.json has one")
    settings = {"unk_token": None, "fuse_unk": False, "byte_fallback": False, "dropout": None, "ignore_merges": False}
    for name, value in (settings | given).items():
        setattr(model, name, value)
    return Tokenizer(model)


def _unigrams(tokenizer: Tokenizer, unknown: int) -> Tokenizer:
    """Return a tokenizer of the same pieces with another unknown one."""
    state = json.loads(tokenizer.model.__getstate__())
    pieces = [(piece, score) for piece, score in state["vocab"]]
    return Tokenizer(models.Unigram(pieces, unk_id=unknown, byte_fallback=False))


def _characters(tokenizer: Tokenizer) -> list[normalizers.Normalizer]:
    """Return SentencePiece's own normalizer, if there is one."""
    state = {} if tokenizer.normalizer is None else json.loads(tokenizer.normalizer.__getstate__())
    for step in state.get("normalizers", [state]):
        if step.get("type") == "Precompiled":
            return [normalizers.Precompiled(base64.b64decode(step["precompiled_charsmap"]))]
    return []


def _bert(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return a tokenizer whose normalizer the settings describe."""
    model = tokenizer.model
    model.unk_token, model.continuing_subword_prefix, model.max_input_chars_per_word = (
        str(tokens["unk_token"]),
        "##",
        100,
    )
    built = Tokenizer(model)
    built.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.switch("tokenize_chinese_chars", True),
        strip_accents=settings.switch("strip_accents", None),
        lowercase=settings.switch("do_lower_case", True),
    )
    built.pre_tokenizer, built.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##")
    return built


def _bytes(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return a byte-level tokenizer that splits texts as GPT-2's does."""
    built = _byte_pairs(tokenizer)
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.switch("add_prefix_space", False))
    built.decoder = decoders.ByteLevel()
    return built


def _composed_bytes(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return the same with characters composed (NFC)."""
    built = _bytes(tokenizer, settings, tokens)
    built.normalizer = normalizers.NFC()
    return built


def _cohere(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return the same with each digit a piece of its own."""
    built = _composed_bytes(tokenizer, settings, tokens)
    digits = pre_tokenizers.Digits(individual_digits=True)
    built.pre_tokenizer = pre_tokenizers.Sequence([digits, built.pre_tokenizer])
    return built


def _qwen(words: str) -> "Build":
    """Return the builder of a byte-level tokenizer that splits texts by a regular expression."""

    def build(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
        built = _byte_pairs(tokenizer)
        prefixed = bool(settings.switch("add_prefix_space", False))
        built.normalizer, built.decoder = normalizers.NFC(), decoders.ByteLevel()
        built.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=prefixed, use_regex=False),
            ]
        )
        return built

    return build


def _with_spaces(built: Tokenizer, scheme: str, stripped: bool) -> Tokenizer:
    """Return a SentencePiece BPE tokenizer with its way of writing spaces."""
    built.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=False)
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if stripped else []))
    return built


def _llama(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return a SentencePiece BPE tokenizer; the legacy one begins with a space after each special token too."""
    prefixed = settings.switch("add_prefix_space", None) is not False
    scheme = "never" if not prefixed else "always" if settings.switch("legacy", False) else "first"
    return _with_spaces(_byte_pairs(tokenizer, fuse_unk=True, byte_fallback=True), scheme, prefixed)


def _code_llama(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return a SentencePiece BPE tokenizer with an unknown token."""
    prefixed = settings.switch("add_prefix_space", True) is not False
    built = _byte_pairs(tokenizer, fuse_unk=True, byte_fallback=True, unk_token=str(tokens["unk_token"]))
    return _with_spaces(built, "first" if prefixed else "never", True)


def _gemma(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return a SentencePiece BPE tokenizer that puts no space before a text."""
    built = _byte_pairs(tokenizer, fuse_unk=True, byte_fallback=True, unk_token=str(tokens["unk_token"]))
    built.normalizer = normalizers.Replace(" ", SPACE)
    built.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    built.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return built


def _words(built: Tokenizer, settings: TokenizerSettings) -> Tokenizer:
    """Return a SentencePiece Unigram tokenizer that splits texts into words."""
    scheme = "always" if settings.switch("add_prefix_space", True) else "never"
    metaspace = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    built.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme=scheme)
    return built


def _xlm_roberta(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return a SentencePiece Unigram tokenizer with SentencePiece's own normalizer."""
    built = _words(_unigrams(tokenizer, unknown=3), settings)
    if characters := _characters(tokenizer):
        built.normalizer = characters[0]
    return built


def _albert(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> Tokenizer:
    """Return a SentencePiece Unigram tokenizer whose normalizer the settings describe."""
    built = _words(_unigrams(tokenizer, unknown=1), settings)
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.switch("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.switch("do_lower_case", True):
        steps += [normalizers.Lowercase()]
    built.normalizer = normalizers.Sequence(steps + _characters(tokenizer))
    numbers = [
        (name, built.token_to_id(str(tokens[key]))) for name, key in (("[CLS]", "cls_token"), ("[SEP]", "sep_token"))
    ]
    built.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=numbers
    )
    return built


def _template(tokenizer: Tokenizer, single: str, pair: str, *names: str) -> processors.PostProcessor:
    numbers = [(name, tokenizer.token_to_id(name)) for name in dict.fromkeys(names)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=numbers)


def _bert_ends(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> processors.PostProcessor:
    """Return the post-processor with [CLS] before and [SEP] after each text."""
    first, last = str(tokens["cls_token"]), str(tokens["sep_token"])
    single = f"{first}:0 $A:0 {last}:0"
    return _template(tokenizer, single, f"{single} $B:1 {last}:1", first, last)


def _roberta_ends(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> processors.PostProcessor:
    """Return the post-processor with <s> before and </s> after a text, and two </s> between those of a pair."""
    first, last = str(tokens["cls_token"]), str(tokens["sep_token"])
    numbers: Any = [(token, tokenizer.token_to_id(token)) for token in (last, first)]
    return processors.RobertaProcessing(*numbers)


def _xlm_ends(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> processors.PostProcessor:
    """Return the same with the tokens of XLM-RoBERTa."""
    first, last = str(tokens["bos_token"]), str(tokens["eos_token"])
    single = f"{first} $A {last}"
    return _template(tokenizer, single, f"{single} {last} $B {last}", first, last)


def _no_ends(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> processors.PostProcessor:
    """Return the post-processor that adds no token."""
    return _template(tokenizer, "$A:0", "$A:0 $B:1")


def _first(tokenizer: Tokenizer, settings: TokenizerSettings, tokens: SpecialTokens) -> processors.PostProcessor:
    """Return the post-processor with the first token before each text."""
    first = tokens["bos_token"]
    return (
        _no_ends(tokenizer, settings, tokens)
        if first is None
        else _template(tokenizer, f"{first}:0 $A:0", f"{first}:0 $A:0 {first}:1 $B:1", str(first))
    )


Build = Callable[[Tokenizer, TokenizerSettings, SpecialTokens], Tokenizer]
Ends = Callable[[Tokenizer, TokenizerSettings, SpecialTokens], processors.PostProcessor]


class TokenizerClass(NamedTuple):
    """A class of tokenizers.

    Args:
        model: the kind of vocabulary that it is put together from.
        build: puts it together.
        tokens: the class's special tokens, where the settings have no others.
        ends: makes the post-processor; that of `tokenizer.json` if absent.
        extra: further special tokens, where the settings have none.
        again: the types of those special tokens that are added once more, without normalisation.
    """

    model: type[models.Model]
    build: Build
    tokens: Mapping[str, str | None]
    ends: Ends | None = None
    extra: tuple[str, ...] = ()
    again: tuple[type, ...] = ()


def _named(*tokens: str | None) -> dict[str, str | None]:
    """Return special tokens by name, of those in the order of `NAMES` that a class has."""
    return {name: token for name, token in zip(NAMES, tokens, strict=True) if token}


_END = "<|endoftext|>"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_OF_GPT2 = _named(_END, _END, _END, None, None, None, None) | {"pad_token": None}
_OF_ROBERTA = _named("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>")
_OF_QWEN = _named(None, _END, _END, None, _END, None, None)
_INFILLING = {
    "prefix_token": "▁<PRE>",
    "middle_token": "▁<MID>",
    "suffix_token": "▁<SUF>",
    "eot_token": "▁<EOT>",
    "fill_token": "<FILL_ME>",
}

_BERT = TokenizerClass(
    models.WordPiece, _bert, _named(None, None, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"), _bert_ends
)
_ROBERTA = TokenizerClass(models.BPE, _bytes, _OF_ROBERTA, _roberta_ends)
_GPT2 = TokenizerClass(models.BPE, _bytes, _OF_GPT2)
_LLAMA = TokenizerClass(models.BPE, _llama, _named("<s>", "</s>", "<unk>", None, None, None, None))

CLASSES: dict[str, TokenizerClass] = {
    "AlbertTokenizer": TokenizerClass(
        models.Unigram, _albert, _named("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]")
    ),
    **dict.fromkeys(("BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"), _BERT),
    **dict.fromkeys(("LayoutLMTokenizer", "LxmertTokenizer", "MobileBertTokenizer", "SqueezeBertTokenizer"), _BERT),
    "CodeGenTokenizer": _GPT2,
    "CodeLlamaTokenizer": TokenizerClass(
        models.BPE,
        _code_llama,
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"} | _INFILLING,
        _first,
        tuple(_INFILLING.values()),
    ),
    "CohereTokenizer": TokenizerClass(
        models.BPE,
        _cohere,
        _named("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>", "<CLS>", "<MASK_TOKEN>"),
        again=(str,),
    ),
    "GPT2Tokenizer": _GPT2,
    "GPTNeoXTokenizer": TokenizerClass(models.BPE, _composed_bytes, _OF_GPT2 | {"pad_token": "<|padding|>"}, _no_ends),
    "GemmaTokenizer": TokenizerClass(
        models.BPE, _gemma, _named("<bos>", "<eos>", "<unk>", None, "<pad>", None, "<mask>")
    ),
    **dict.fromkeys(("LlamaTokenizer", "Phi3Tokenizer"), _LLAMA),
    "Qwen2Tokenizer": TokenizerClass(models.BPE, _qwen(_WORDS), _OF_QWEN, again=(str, AddedToken)),
    **dict.fromkeys(("BartTokenizer", "LEDTokenizer", "LongformerTokenizer", "MvpTokenizer"), _ROBERTA),
    "RobertaTokenizer": _ROBERTA,
    "XLMRobertaTokenizer": TokenizerClass(models.Unigram, _xlm_roberta, _OF_ROBERTA, _xlm_ends),
}
"""The classes that are known here, by name."""
