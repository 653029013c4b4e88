"""A checkpoint directory made of any bytes, read as `duat explain` does, up to the forward pass."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duat_jax as duat
from duat_jax.inputs import labels
from duat_jax.inputs.question import ask
from duat_jax.models.encoding import encode

TEXT = "w5 w17 w3"

WORDS = [
    *("gpt2", "bert", "gelu_new", "relu", "absolute", "relative_key", "bidi"),
    *("n_embd", "hidden_size", "n_layer", "sliding_window", "rope_scaling", "quantization_config", "pruned_heads"),
    *("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E8M0", "F4", "I64", "I32", "U8", "BOOL", "C64", "__metadata__"),
    *("transformer.", "bert.", "wte.weight", "ln_f.bias", "lm_head.weight", "h.0.", "h.1.", "LayerNorm.gamma"),
    *("BPE", "WordPiece", "WordLevel", "Unigram", "[UNK]", "unk_token", "unk_id", "byte_fallback", "merges", "vocab"),
    *(
        "Precompiled",
        "precompiled_charsmap",
        "NFKC",
        "Replace",
        "Prepend",
        "Regex",
        "pattern",
        "Strip",
        "BertNormalizer",
    ),
    *("ByteLevel", "Metaspace", "Split", "Whitespace", "Sequence", "Digits", "UnicodeScripts", "FixedLength"),
    *("TemplateProcessing", "RobertaProcessing", "BertProcessing", "ByteFallback", "Fuse", "CTC", "type", "content"),
    *("single", "pair", "special_tokens", "truncation", "padding", "Fixed", "BatchLongest", "stride", "max_length"),
]
"""Words that mean something in one of the files."""

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1, "F8_E4M3": 1}
"""Bytes of an entry, of dtypes that a tensor may be stored in."""

_VOCAB = {"[UNK]": 0, "w": 1, "##5": 2, "w5": 3, "a": 2**32 - 1}
COMPONENTS: dict[str, list[dict[str, Any]]] = {
    "model": [
        {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9}
        | {"vocab": _VOCAB},
        {"type": "WordLevel", "unk_token": "[UNK]", "vocab": _VOCAB},
        {"type": "BPE", "vocab": {"w": 0, "5": 1, "w5": 2}, "merges": ["w 5"], "byte_fallback": True},
        {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["w", -1.0], ["5", -2.0]], "byte_fallback": False},
    ],
    "normalizer": [
        {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="},
        {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
        | {"lowercase": True},
        {"type": "Replace", "pattern": {"Regex": "(w+)*5"}, "content": "5"},
        {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Prepend", "prepend": "_"}, {"type": "Nmt"}]},
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ],
    "pre_tokenizer": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True},
        {"type": "Split", "pattern": {"Regex": "[a-z]"}, "behavior": "Isolated", "invert": False},
        {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "Punctuation"}]},
        {"type": "FixedLength", "length": 1},
    ],
    "post_processor": [
        {"type": "BertProcessing", "sep": ["[SEP]", 2**32 - 1], "cls": ["[CLS]", 0]},
        {"type": "RobertaProcessing", "sep": ["b", 2], "cls": ["a", 1], "trim_offsets": True, "add_prefix_space": True},
        {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": []}
        | {"special_tokens": {}},
    ],
    "decoder": [
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        {"type": "Strip", "content": " ", "start": 1, "stop": 3},
        {"type": "CTC", "pad_token": "w", "word_delimiter_token": "|", "cleanup": True},
        {"type": "BPEDecoder", "suffix": "5"},
    ],
    "truncation": [{"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 7}],
    "padding": [
        {"strategy": {"Fixed": 30}, "direction": "Left", "pad_to_multiple_of": 0, "pad_id": 0, "pad_type_id": 0}
        | {"pad_token": "w"}
    ],
    "added_tokens": [
        {"id": 2**32 - 1, "content": "w5", "single_word": False, "lstrip": True, "rstrip": True}
        | {"normalized": False, "special": True}
    ],
}
"""Parts of a tokenizer, by the field where they stand."""


def with_one_tensor(file: bytes, name: str, new_name: str, dtype: str, shape: list[int], content: bytes) -> bytes:
    """Return a safetensors file in which one tensor is another, everything else in its place.

    Args:
        file: all of it.
        name: the tensor.
        new_name: what it is called now; empty if it is left out.
        dtype: one of `SIZES`.
        shape: its shape.
        content: its bytes, repeated as often as it needs.
    """
    header, data = split_safetensors(file)
    header.pop("__metadata__", None)
    stored = {key: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for key, e in header.items()}
    length = math.prod(shape) * SIZES[dtype]
    del stored[name]
    if new_name:
        content = content or bytes(1)
        stored[new_name] = (dtype, shape, (content * (length // len(content) + 1))[:length])
    new: dict[str, Any] = {}
    whole = b""
    for key, (kind, sizes, part) in stored.items():
        new[key] = {"dtype": kind, "shape": sizes, "data_offsets": [len(whole), len(whole) + len(part)]}
        whole += part
    return safetensors_file(new, whole)


def safetensors_file(header: Any, content: bytes) -> bytes:
    """Return a safetensors file with a header that may be anything.

    Args:
        header: its header, JSON or bytes.
        content: the bytes behind it.
    """
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def split_safetensors(file: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header of a safetensors file, and what stands behind it.

    Args:
        file: all of it.
    """
    length = int.from_bytes(file[:8], "little")
    return json.loads(file[8 : 8 + length]), file[8 + length :]


def read_text(directory: Path, text: str = TEXT) -> str | None:
    """Ask a question of a checkpoint's configuration and tokenizer.

    Args:
        directory: the checkpoint.
        text: what its tokenizer is given.

    Returns:
        The message of the one error that may come out; `None` if there is none.
    """
    try:
        tokenizer, config = duat.load_tokenizer(directory), duat.load_config(directory)
        ids = encode(tokenizer, text, "the text")
        ask(SimpleNamespace(config=config, tokenizer=None), ids, against=ids if config.head.kind == "hidden" else None)
        labels.readable(tokenizer, range(min(config.vocab, 100)))
    except duat.DuatError as error:
        return str(error)
    return None


def read_model(directory: Path) -> str | None:
    """Read a checkpoint's configuration and tensors.

    Args:
        directory: the checkpoint.

    Returns:
        The message of the one error that may come out; `None` if there is none.
    """
    try:
        duat.load(directory)
    except duat.DuatError as error:
        return str(error)
    return None
