"""Probes of packages that read checkpoints and tokenizers, quantise, or attribute in PyTorch."""

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.compatibility_probes import probe

SIZES = dict.fromkeys(("vocab_size", "intermediate_size", "hidden_size", "max_position_embeddings"), 32) | {
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
"""The smallest Llama."""

WORDS = {token: place for place, token in enumerate(["<s>", "</s>", "<unk>", "a", "b", "Ġ", "▁", "1", "2", "12"])}


def _ids(kind: str) -> str:
    """Return the ids of `"ab 12"` by a class that the configuration names, of a file without normalizer."""
    from tokenizers import Tokenizer, models
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as folder:
        model = models.BPE(vocab=WORDS, merges=[("1", "2")], unk_token="<unk>")
        Tokenizer(model).save(f"{folder}/tokenizer.json")
        named = {"tokenizer_class": kind, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
        return str(AutoTokenizer.from_pretrained(folder)("ab 12")["input_ids"])


def _config(**fields: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**SIZES | fields)


@probe(
    "transformers",
    "dtype of a checkpoint saved in bfloat16 that `from_pretrained` loads by default",
    here="`duat.load` has float32 unless `dtype` says otherwise",
    source="`transformers.PreTrainedModel.from_pretrained`, `dtype`",
)
def default_dtype() -> str:
    """Return the dtype."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(_config()).to(torch.bfloat16).save_pretrained(folder)
        return str(AutoModelForCausalLM.from_pretrained(folder).dtype).removeprefix("torch.")


SAME_IDS = "the ids of transformers 5"


@probe(
    "transformers",
    "ids of `ab 12` where `tokenizer_config.json` names `LlamaTokenizer` and `tokenizer.json` adds nothing",
    here=SAME_IDS,
    source="`transformers.LlamaTokenizer`: version 4 puts `<s>` in front, version 5 replaces spaces by `▁` itself",
)
def llama_ids() -> str:
    """Return the ids."""
    return _ids("LlamaTokenizer")


@probe("transformers", "the same with `GemmaTokenizer`", here=SAME_IDS, source="`transformers.GemmaTokenizer`")
def gemma_ids() -> str:
    """Return the ids."""
    return _ids("GemmaTokenizer")


@probe("transformers", "the same with `GPT2Tokenizer`", here=SAME_IDS, source="`transformers.GPT2Tokenizer`")
def gpt2_ids() -> str:
    """Return the ids."""
    return _ids("GPT2Tokenizer")


@probe(
    "transformers",
    '`num_hidden_layers` of `"2"`, a text',
    here="refused: must be a positive whole number",
    source="`transformers.PretrainedConfig`, dataclasses that are checked since version 5",
)
def layers_as_text() -> str:
    """Return what the configuration says."""
    return repr(_config(num_hidden_layers="2").num_hidden_layers)


@probe(
    "transformers",
    "`hidden_size` 30 with 4 heads",
    here="refused, since rotary positions turn pairs and a head has 7 features",
    source="`transformers.PretrainedConfig.validate_architecture`",
)
def undivided_heads() -> str:
    """Return whether it is accepted."""
    return f"accepted, {_config(hidden_size=30).hidden_size}"


@probe(
    "transformers",
    "`GenerationConfig().max_length`",
    here="nothing is generated",
    source="`transformers.GenerationConfig`",
)
def longest_generation() -> str:
    """Return it."""
    from transformers import GenerationConfig

    return str(GenerationConfig().max_length)


@probe(
    "transformers",
    "type that `apply_chat_template` returns",
    here="`duat explain --chat` reads the template itself, and tokenizes its text",
    source="`transformers.PreTrainedTokenizerBase.apply_chat_template`, `return_dict`",
)
def chat_type() -> str:
    """Return the type's name."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab=WORDS, merges=[])))
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    return type(tokenizer.apply_chat_template([{"role": "user", "content": "ab"}])).__name__


@probe(
    "peft",
    "dtype of new adapters on a model in bfloat16",
    here="float32",
    source="`peft.tuners.tuners_utils.cast_adapter_dtype`",
)
def adapter_dtype() -> str:
    """Return the dtype."""
    import peft
    import torch
    from transformers import LlamaForCausalLM

    base = LlamaForCausalLM(_config()).to(torch.bfloat16)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    return next(str(p.dtype) for name, p in adapted.named_parameters() if "lora_A" in name).removeprefix("torch.")


@probe(
    "gguf",
    "kinds of MXFP4 and NVFP4 that it dequantises",
    here="kinds that the installed gguf dequantises are read, any other is refused by name",
    source="`gguf.constants.GGMLQuantizationType`, `gguf.quants`",
)
def new_kinds() -> str:
    """Return the kinds."""
    import gguf

    known = [kind for kind in ("MXFP4", "NVFP4") if hasattr(gguf.GGMLQuantizationType, kind)]
    return " and ".join(known) or "none"


@probe(
    "captum",
    "`FeaturePermutation` of a batch of one",
    here="no units are permuted over a batch; a baseline is always named",
    source="`captum.attr.FeaturePermutation`: one row can't be permuted, so zeros say nothing",
)
def permutation_of_one() -> str:
    """Return the scores."""
    import torch
    from captum.attr import FeaturePermutation

    return str(FeaturePermutation(lambda x: (x**2).sum(1)).attribute(torch.tensor([[1.0, 2.0]]))[0].tolist())
