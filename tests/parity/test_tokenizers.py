"""Token ids, classes and families of tokenizers against transformers' `AutoTokenizer`, live."""

import json
from pathlib import Path

import pytest
import transformers
from tokenizer_layouts import KEPT, LAYOUTS, TEXTS, unpacked
from transformers import TokenizersBackend
from transformers.convert_slow_tokenizer import SLOW_TO_FAST_CONVERTERS
from transformers.models.auto import tokenization_auto

from duat_jax.models.checkpoint import tokenizer_configured as ours
from duat_jax.models.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from duat_jax.models.checkpoint.tokenizer_classes import CLASSES
from duat_jax.models.registry import FAMILIES

from .tokenizers import all_ids


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_kept_token_ids_are_the_references(layout):
    assert dict(all_ids(layout)) == unpacked(json.loads(KEPT.read_text())[layout])


def test_every_class_that_reads_texts_in_a_way_of_its_own_is_known_or_refused():
    mapped = tokenization_auto.TOKENIZER_MAPPING_NAMES.values()
    # A class that shares its converter with another one is that class, though no list of classes has it.
    names = {name for name in [*dir(transformers), *mapped, *SLOW_TO_FAST_CONVERTERS] if name}
    names = {name.removesuffix("Fast") for name in names if name.endswith(("Tokenizer", "TokenizerFast"))}
    names -= {"AutoTokenizer", "PreTrainedTokenizer"}
    assert CLASSES.keys() | ours.UNKNOWN == {name for name in names if _is_rebuilt(name)} | (ours.UNKNOWN - names)


def _is_rebuilt(name):
    kind = tokenization_auto.tokenizer_class_from_name(name)
    is_backend = isinstance(kind, type) and issubclass(kind, TokenizersBackend)
    return not is_backend or kind.__init__ is not TokenizersBackend.__init__


def test_the_class_of_each_family_is_the_references():
    registered = {name: tokenization_auto.TOKENIZER_MAPPING_NAMES.get(name) for name in FAMILIES}
    kept = {
        name: kind
        for name, kind in registered.items()
        if kind not in (None, "TokenizersBackend", "MistralCommonBackend")
    }
    assert kept == {name: kind for name, kind in ours.REGISTERED.items() if name in FAMILIES}
    assert {name for name, kind in registered.items() if kind} - kept.keys() == ours.AS_THEY_ARE
    wrong = tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
    assert wrong & kept.keys() == ours.ALWAYS


RULES = {
    "gpt-2": "GPT2Tokenizer",
    "mpt": "GPTNeoXTokenizer",
    "olmo": "GPTNeoXTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "stablelm2": "Qwen2Tokenizer",  # whose rule Stability's own tokenizer has
    "command-r": "CohereTokenizer",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_gguf_file_splits_texts_as_the_class_of_its_model_does(rule):
    model = json.loads(LAYOUTS["gpt2"].make().to_str())["model"]
    vocab, merges = model["vocab"], [tuple(merge) for merge in model["merges"]]
    values = {"model": "gpt2", "pre": rule, "tokens": [*vocab], "merges": [*map(" ".join, merges)]}
    read = read_gguf_tokenizer(Path("file"), {f"tokenizer.ggml.{name}": value for name, value in values.items()})
    expected = getattr(transformers, RULES[rule])(vocab=dict(vocab), merges=merges)
    for text in (*TEXTS, "e\u0301 \u1112\u1161\u11ab"):
        ids = read.encode(text, add_special_tokens=False).ids
        assert ids == expected(text, add_special_tokens=False)["input_ids"], text
