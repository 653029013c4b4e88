"""Tokenizers from a GGUF file's metadata, built with the tokenizers library."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from duat_jax.models.chat import set_template
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.tokenizer import one_error

ROOM = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"

HARMLESS = re.compile(r"tokenizer\.(chat_template.*|huggingface\.json|ggml\.(token_type_count|\w+_token_ids?))")
"""Keys of the chat template, of a copy in another format, and of the ids of special tokens."""

_REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _REST
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SIGNS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}" + _SIGNS + _REST
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDING}|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDING}|\p{{N}}{{1,3}}" + _SIGNS + _REST
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    + _REST,
)


class _SplitRules(NamedTuple):
    """Rules for splitting a text before its bytes are merged.

    Args:
        words: regular expressions, each of which splits the pieces of those before it; GPT-2's if there are none.
        digits: whether each digit is a piece of its own.
        runs: whether runs of punctuation are pieces, and runs of digits, three of them at most.
        keeps_tokens: whether a piece that is a token stays one, regardless of merges.
        begins: whether texts begin with a token unless a key denies it.
        composed: whether characters are composed before (NFC).
    """

    words: tuple[str, ...] = ()
    digits: bool = False
    runs: bool = False
    keeps_tokens: bool = False
    begins: bool = False
    composed: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        """Return the pre-tokenizer, which splits a text and maps its bytes to characters."""
        steps: list[pre_tokenizers.PreTokenizer] = []
        steps += [pre_tokenizers.Digits(individual_digits=True)] if self.digits else []
        steps += [pre_tokenizers.Punctuation("contiguous")] if self.runs else []
        steps += [pre_tokenizers.Split(Regex(words), "isolated") for words in self.words]
        steps += [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not self.words)]
        if self.runs:  # some bytes become characters that are digits too
            steps += [pre_tokenizers.Digits(individual_digits=False)]
            steps += [pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]
        return pre_tokenizers.Sequence(steps)


_DIGITS, _OF_LLAMA3 = _SplitRules(digits=True), _SplitRules((_LLAMA3,), keeps_tokens=True, begins=True)
_OF_QWEN2, _OF_GPT4O = _SplitRules((_QWEN2,), composed=True), _SplitRules((_GPT4O,))
SPLITS = {
    **dict.fromkeys(("gpt-2", "phi-2"), _SplitRules()),
    **dict.fromkeys(("mpt", "olmo"), _SplitRules(composed=True)),
    "smollm": _DIGITS,
    **dict.fromkeys(("starcoder", "refact", "codeshell"), _DIGITS),
    "command-r": _SplitRules(digits=True, composed=True),
    "falcon": _SplitRules(runs=True),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _OF_LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _SplitRules((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), _OF_QWEN2),
    "tekken": _SplitRules((_TEKKEN,), keeps_tokens=True, begins=True),
    "gpt-4o": _OF_GPT4O,
    "llama4": _OF_GPT4O,
    "deepseek-v3": _SplitRules(_DEEPSEEK3),
}
"""Rules for splitting texts, by `tokenizer.ggml.pre`: those of the tokenizers with these names."""

UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
"""Types of tokens; control and user-defined tokens are matched in a text literally."""

Build = Callable[[], Tokenizer]

LONGEST = 256
"""The largest number of characters of a token, since all ways to cut it in two are tried."""

SPACE = "▁"
"""SentencePiece's character for a space."""


class _Values:
    """The metadata of a tokenizer, which of them were read, and the problems found in them."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.values = {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}
        self.unread = {key for key in self.values if not HARMLESS.fullmatch(key)}
        self.problems: list[str] = []

    def take(self, name: str, default: Any) -> Any:
        """Return a value of the default's type."""
        self.unread.discard(ROOM + name)
        value = self.values.get(ROOM + name, default)
        if not isinstance(value, type(default)):
            self.problems.append(f"{ROOM}{name} = {quoted(value)} must be a {type(default).__name__}")
            return default
        return value

    def token(self, name: str, tokens: Sequence[str]) -> str | None:
        """Return a token by the key of its id, or `None`."""
        number = self.values.get(f"{ROOM}{name}_token_id")
        if number is not None and not (isinstance(number, int) and 0 <= number < len(tokens)):
            self.problems.append(f"{ROOM}{name}_token_id = {quoted(number)} is no token: there are {len(tokens)}")
            return None
        return None if number is None else tokens[number]

    def expect(self, name: str, value: Any) -> None:
        """Note a problem unless a key is absent or has the only supported value."""
        if self.take(name, value) != value:
            self.problems.append(
                f"{ROOM}{name} = {quoted(self.values[ROOM + name])} isn't supported, only {value!r} is"
            )

    def all_problems(self) -> list[str]:
        return self.problems + [
            f"{quoted(key)} = {quoted(self.values[key])} isn't known here and may change the tokens"
            for key in sorted(self.unread)
        ]


def read_gguf_tokenizer(path: Path, metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that a file's metadata describe."""
    values = _Values(metadata)
    kind, tokens = values.take("model", ""), values.take("tokens", [])
    vocab = {token: i for i, token in enumerate(tokens)}
    if not vocab or len(vocab) < len(tokens) or not all(isinstance(token, str) for token in tokens):
        values.problems.append(f"{ROOM}tokens must be distinct texts")
    if any(len(str(token)) > LONGEST for token in tokens):
        values.problems.append(f"{ROOM}tokens has a token of more than {LONGEST} characters, which isn't supported")
    types = values.take("token_type", np.ones(len(tokens), np.int32))
    if types.shape != (len(tokens),):
        values.problems.append(f"{ROOM}token_type has {len(types)} entries for {len(tokens)} tokens")
    if kind not in MODELS:
        values.problems.append(f"{ROOM}model = {quoted(kind)} isn't supported, only {', '.join(MODELS)} are")
        raise_problems(path, values.problems)
    build, adds_beginning = MODELS[kind](values, vocab, types)
    ends = {"bos": values.take("add_bos_token", adds_beginning), "eos": values.take("add_eos_token", False)}
    around = {name: token for name, added in ends.items() if added and (token := values.token(name, tokens))}
    values.problems += [f"{ROOM}{name}_token_id must be given" for name in ends if ends[name] and name not in around]
    raise_problems(path, values.all_problems())
    with one_error(f"{path}: not a tokenizer"):
        tokenizer = build()
        tokenizer.add_special_tokens(
            [AddedToken(token, normalized=False) for token in _of_type(tokens, types, CONTROL)]
        )
        # Files write spaces in them literally or as SentencePiece does: both match if no space is prepended to texts.
        written = kind == "llama" and not values.take("add_space_prefix", True)
        own = [AddedToken(token, normalized=written) for token in _of_type(tokens, types, USER_DEFINED)]
        tokenizer.add_tokens(own)
        if around:
            tokenizer.post_processor = _template(around, vocab)
    special = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad", "seperator": "sep", "mask": "mask"}
    named = {f"{ours}_token": values.token(name, tokens) for name, ours in special.items()}
    set_template(tokenizer, template if isinstance(template := metadata.get(TEMPLATE), str) else None, named)
    return tokenizer


def _of_type(tokens: Sequence[str], types: np.ndarray, of_type: int) -> list[str]:
    return [tokens[i] for i in np.flatnonzero(types == of_type).tolist()]


def _template(around: Mapping[str, str], vocab: Mapping[str, int]) -> processors.TemplateProcessing:
    """Return the post-processor that adds the first and the last token."""
    first, last = around.get("bos"), around.get("eos")
    return processors.TemplateProcessing(
        single=[*([first] if first else []), "$A", *([last] if last else [])],
        special_tokens=[(token, vocab[token]) for token in dict.fromkeys(around.values())],
    )


def _byte_level(values: _Values, vocab: dict[str, int], types: np.ndarray) -> tuple[Build, bool]:
    """Return the builder of a byte-level BPE tokenizer, and whether texts begin with a token by default."""
    kind = values.take("pre", "")
    merges = [tuple(merge.split(" ")) for merge in values.take("merges", [])]
    values.take("scores", np.zeros(0, np.float32))
    values.expect("add_space_prefix", False)
    if kind not in SPLITS:
        values.problems.append(
            f"{ROOM}pre = {quoted(kind)}: its rule for splitting texts isn't known, only {', '.join(SPLITS)} are"
        )

    split = SPLITS.get(kind, _SplitRules())

    def build() -> Tokenizer:
        tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=split.keeps_tokens))
        if split.composed:
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = split.pre_tokenizer()
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    return build, split.begins


def _sentencepiece(values: _Values, vocab: dict[str, int], types: np.ndarray) -> tuple[Build, bool]:
    """Return the builder of a SentencePiece BPE tokenizer, and whether texts begin with a token by default."""
    # The two neighbours are merged whose merger has the highest score.
    scores = values.take("scores", np.zeros(0, np.float32))
    if scores.shape != (len(vocab),):
        values.problems.append(f"{ROOM}scores has {len(scores)} entries for {len(vocab)} tokens")
    values.take("pre", "")
    values.expect("remove_extra_whitespaces", False)
    prefixed = values.take("add_space_prefix", True)
    unknown = values.token("unknown", list(vocab))

    def build() -> Tokenizer:
        never = set(np.flatnonzero(np.isin(types, (UNKNOWN, CONTROL, BYTE))).tolist())
        halves = [
            (scores[i], token[:cut], token[cut:])
            for token, i in vocab.items()
            for cut in range(1, len(token) if i not in never else 1)
            if token[:cut] in vocab and token[cut:] in vocab
        ]
        # Of the ways to cut one token, the longest first half comes first: it is the leftmost merge.
        merges = [half[1:] for half in sorted(halves, key=lambda half: (-half[0], -len(half[1])))]
        tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
        spaces = [normalizers.Replace(" ", SPACE)]
        tokenizer.normalizer = normalizers.Sequence(([normalizers.Prepend(SPACE)] if prefixed else []) + spaces)
        steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefixed else []))
        return tokenizer

    return build, True


MODELS = {"gpt2": _byte_level, "llama": _sentencepiece}
"""The supported tokenizers, by `tokenizer.ggml.model`."""
