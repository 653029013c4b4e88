"""The tokenizer that a GGUF file's metadata describe, as one of the tokenizers library."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from duat_jax.models.checkpoint.problems import raise_problems, shown
from duat_jax.models.checkpoint.tokenizer import one_error

ROOM = "tokenizer.ggml."

HARMLESS = re.compile(r"tokenizer\.(chat_template.*|huggingface\.json|ggml\.(token_type_count|\w+_token_ids?))")
"""How a conversation becomes one text, a copy in other words, and which tokens end a text or stand for something."""

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace("{1,3}", "")
_WORDS = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3, "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2}
_DIGITS = ("smollm", "starcoder")
SPLITS = ("gpt-2", *_DIGITS, *_WORDS)
"""Into what a text is split before bytes are merged: GPT-2's words, single digits and GPT-2's words, or other words."""

CONTROL, USER_DEFINED = 3, 4
"""The types of tokens that are found in a text as they stand."""

Build = Callable[[], Tokenizer]

LONGEST = 256
"""The most characters of a token: every way of cutting one in two is tried."""

SPACE = "▁"
"""What SentencePiece writes for a space."""


class _Values:
    """The metadata of a tokenizer, which of them were read, and the problems found in them."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.values = {key: value for key, value in metadata.items() if key.startswith("tokenizer.")}
        self.unread = {key for key in self.values if not HARMLESS.fullmatch(key)}
        self.problems: list[str] = []

    def take(self, name: str, default: Any) -> Any:
        """Return a value of the default's kind."""
        self.unread.discard(ROOM + name)
        value = self.values.get(ROOM + name, default)
        if not isinstance(value, type(default)):
            self.problems.append(f"{ROOM}{name} = {shown(value)} must be a {type(default).__name__}")
            return default
        return value

    def token(self, name: str, tokens: Sequence[str]) -> str | None:
        """Return a token that is given by its number, or `None` if there is none."""
        number = self.values.get(f"{ROOM}{name}_token_id")
        if number is not None and not (isinstance(number, int) and 0 <= number < len(tokens)):
            self.problems.append(f"{ROOM}{name}_token_id = {shown(number)} is no token: there are {len(tokens)}")
            return None
        return None if number is None else tokens[number]

    def expect(self, name: str, value: Any) -> None:
        """Note a problem unless a key has the only value that is supported, or is absent."""
        if self.take(name, value) != value:
            self.problems.append(f"{ROOM}{name} = {shown(self.values[ROOM + name])} isn't supported, only {value!r} is")

    def all_problems(self) -> list[str]:
        return self.problems + [
            f"{shown(key)} = {shown(self.values[key])} isn't known here and may change the tokens"
            for key in sorted(self.unread)
        ]


def read_gguf_tokenizer(path: Path, metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer that a file's metadata describe.

    Args:
        path: the file, for messages.
        metadata: what its header says.

    Raises:
        BadCheckpoint: naming every key that isn't known or supported at once.
    """
    values = _Values(metadata)
    kind, tokens = values.take("model", ""), values.take("tokens", [])
    vocab = {token: i for i, token in enumerate(tokens)}
    if not vocab or len(vocab) < len(tokens) or not all(isinstance(token, str) for token in tokens):
        values.problems.append(f"{ROOM}tokens must be texts, each another")
    if any(len(str(token)) > LONGEST for token in tokens):
        values.problems.append(f"{ROOM}tokens has one of more than {LONGEST} characters, which no model has")
    types = values.take("token_type", np.ones(len(tokens), np.int32))
    if types.shape != (len(tokens),):
        values.problems.append(f"{ROOM}token_type has {len(types)} entries for {len(tokens)} tokens")
    if kind not in MODELS:
        values.problems.append(f"{ROOM}model = {shown(kind)} isn't supported, only {', '.join(MODELS)} are")
        raise_problems(path, values.problems)
    if str(metadata.get("general.architecture")).startswith("gemma"):
        values.problems.append("the order in which Gemma's tokens are merged isn't in the file: use tokenizer.json")
    build, adds_beginning = MODELS[kind](values, vocab)
    ends = {"bos": values.take("add_bos_token", adds_beginning), "eos": values.take("add_eos_token", False)}
    around = {name: token for name, added in ends.items() if added and (token := values.token(name, tokens))}
    values.problems += [f"{ROOM}{name}_token_id must be given" for name in ends if ends[name] and name not in around]
    raise_problems(path, values.all_problems())
    with one_error(f"{path}: not a tokenizer"):
        tokenizer = build()
        tokenizer.add_special_tokens(_added(tokens, types, CONTROL))
        tokenizer.add_tokens(_added(tokens, types, USER_DEFINED))
        if around:
            tokenizer.post_processor = _template(around, vocab)
    return tokenizer


def _added(tokens: Sequence[str], types: np.ndarray, of_type: int) -> list[AddedToken]:
    found = np.flatnonzero(types == of_type).tolist()
    return [AddedToken(tokens[i], special=of_type == CONTROL, normalized=False) for i in found]


def _template(around: Mapping[str, str], vocab: Mapping[str, int]) -> processors.TemplateProcessing:
    """Return what adds the first and the last token."""
    first, last = around.get("bos"), around.get("eos")
    return processors.TemplateProcessing(
        single=[*([first] if first else []), "$A", *([last] if last else [])],
        special_tokens=[(token, vocab[token]) for token in dict.fromkeys(around.values())],
    )


def _byte_level(values: _Values, vocab: dict[str, int]) -> tuple[Build, bool]:
    """Return what makes a tokenizer that merges bytes, and whether texts begin with a token unless a key denies it."""
    kind = values.take("pre", "")
    merges = [tuple(merge.split(" ")) for merge in values.take("merges", [])]
    values.take("scores", np.zeros(0, np.float32))
    values.expect("add_space_prefix", False)
    if kind not in SPLITS:
        values.problems.append(
            f"{ROOM}pre = {shown(kind)}: how it splits texts isn't known, only {', '.join(SPLITS)} are"
        )

    def build() -> Tokenizer:
        tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=_WORDS.get(kind) == _LLAMA3))
        if _WORDS.get(kind) == _QWEN2:
            tokenizer.normalizer = normalizers.NFC()
        first = [pre_tokenizers.Split(Regex(_WORDS[kind]), "isolated")] if kind in _WORDS else []
        digits = [pre_tokenizers.Digits(individual_digits=True)] if kind in _DIGITS else []
        mapped = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind not in _WORDS)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, *digits, mapped])
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    return build, _WORDS.get(kind) == _LLAMA3


def _sentencepiece(values: _Values, vocab: dict[str, int]) -> tuple[Build, bool]:
    """Return what makes a tokenizer that merges characters, and whether texts begin with a token.

    The two neighbours are merged whose merger has the highest score.
    """
    scores = values.take("scores", np.zeros(0, np.float32))
    if scores.shape != (len(vocab),):
        values.problems.append(f"{ROOM}scores has {len(scores)} entries for {len(vocab)} tokens")
    values.take("pre", "")
    values.expect("remove_extra_whitespaces", False)
    prefixed = values.take("add_space_prefix", True)
    unknown = values.token("unknown", list(vocab))

    def build() -> Tokenizer:
        halves = [
            (scores[i], token[:cut], token[cut:])
            for token, i in vocab.items()
            for cut in range(1, len(token))
            if token[:cut] in vocab and token[cut:] in vocab
        ]
        merges = [half[1:] for half in sorted(halves, key=lambda half: -half[0])]
        tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
        spaces = [normalizers.Replace(" ", SPACE)]
        tokenizer.normalizer = normalizers.Sequence(([normalizers.Prepend(SPACE)] if prefixed else []) + spaces)
        steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefixed else []))
        return tokenizer

    return build, True


MODELS = {"gpt2": _byte_level, "llama": _sentencepiece}
"""What is read, by `tokenizer.ggml.model`."""
