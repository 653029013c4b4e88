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


@probe(
    "tokenizers",
    "digest of the ids and offsets of three texts by seven pipelines: normalizers, pre-tokenizers, an added token with"
    " `lstrip`, truncation from the left",
    here="a checkpoint's `tokenizer.json` is run by `tokenizers`",
    source="`tokenizers.Tokenizer.encode`; no difference seen",
)
def tokenizer_digest() -> str:
    """Return the digest."""
    import hashlib

    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, trainers

    texts = ["The quick  brown ﬁx, 12345 times.", "Ünïcode Straße don't", "<m> a\tb\n\n c<m>"]
    pipelines: list[tuple[Any, Any]] = [
        (normalizers.NFKC(), pre_tokenizers.ByteLevel(add_prefix_space=False)),
        (normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()),
        (normalizers.StripAccents(), pre_tokenizers.Metaspace()),
        (normalizers.Lowercase(), pre_tokenizers.Digits(individual_digits=True)),
        (normalizers.NFD(), pre_tokenizers.Whitespace()),
        (normalizers.Replace("a", "bb"), pre_tokenizers.Punctuation("isolated")),
        (normalizers.Prepend("▁"), pre_tokenizers.UnicodeScripts()),
    ]
    answers: list[Any] = []
    for normalizer, pre_tokenizer in pipelines:
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
        trainer = trainers.BpeTrainer(vocab_size=80, special_tokens=["<unk>"], show_progress=False)
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.add_special_tokens([AddedToken("<m>", lstrip=True)])
        for text in texts:
            whole = tokenizer.encode(text)
            whole.truncate(9, direction="left")
            answers.append((whole.ids, whole.offsets))
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:8]


def _torch_gradients(function: Any, *points: float) -> list[float]:
    import torch

    inputs = [torch.tensor(point, requires_grad=True) for point in points]
    return [float(part) for part in torch.autograd.grad(function(*inputs), inputs)]


@probe(
    "torch",
    "gradients of `abs` at 0 and of both sides of `maximum` at a tie",
    here="`duat.secant` from 0 to 0 has the slope 0 for `abs`, the middle, and 0.5 for `maximum(x, 0)`",
    source="`torch.abs`, `torch.maximum`; JAX has 1 and 0.5, 0.5",
)
def torch_ties() -> str:
    """Return the gradients."""
    import torch

    return str(_torch_gradients(torch.abs, 0.0) + _torch_gradients(torch.maximum, 0.0, 0.0))


@probe(
    "torch",
    "gradient of `clamp(x, 0, 1)` at 0",
    here="`duat.secant` from 0 to 0 has the slope 0.5",
    source="`torch.clamp`; JAX has 0.5 for `clip`",
)
def torch_clamp_at_a_bound() -> str:
    """Return the gradient."""
    return str(_torch_gradients(lambda x: x.clamp(0, 1), 0.0)[0])


@probe(
    "torch",
    "`scaled_dot_product_attention` of a query from which every key is hidden",
    here="attention is NaN where no key has a finite score, as in JAX, and the question ends with `NotFinite`",
    source="`torch.nn.functional.scaled_dot_product_attention`, on a CPU",
)
def torch_hidden_row() -> str:
    """Return an entry of its output."""
    import torch

    ones = torch.ones(1, 1, 2, 4)
    hidden = torch.tensor([[True, True], [False, False]])
    return str(float(torch.nn.functional.scaled_dot_product_attention(ones, ones, ones, attn_mask=hidden)[0, 0, 1, 0]))


@probe(
    "transformer-lens",
    "sum of the parts of a Granite's logit by `ActivationCache.logit_attrs`, over the logit; `logits_scaling` is 4",
    here="the parts sum to the logit: the scale is in the read-out",
    source="`transformer_lens.ActivationCache.logit_attrs`",
)
def scaled_logit_parts() -> str:
    """Return the ratio."""
    import logging

    import torch
    from transformer_lens.model_bridge.sources import _bridge_builder as builder
    from transformers import GraniteConfig, GraniteForCausalLM

    logging.disable()
    torch.manual_seed(0)
    special = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.4}
    model = GraniteForCausalLM(GraniteConfig(**SIZES | special, logits_scaling=4.0)).eval()
    with torch.no_grad():
        bridge = builder.build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
        logits, cache = bridge.run_with_cache(torch.tensor([[5, 7, 9, 3]]))
        parts = cache.logit_attrs(cache.decompose_resid(pos_slice=-1), tokens=7, pos_slice=-1)
    return f"{parts.sum() / logits[0, -1, 7]:.2f}"


@probe(
    "circuit-tracer",
    "identifiers of feature 3 of layer 0 and of the error of layer 3, both at token 7",
    here="`to_viewer` of a graph has names of their own for sums of other neurons",
    source="`circuit_tracer.frontend.graph_models.Node`",
)
def node_identifiers() -> str:
    """Return both."""
    import sys
    from importlib.metadata import distribution
    from importlib.util import module_from_spec, spec_from_file_location

    # The one file, without the package around it, which imports PyTorch.
    file = distribution("circuit-tracer").locate_file("circuit_tracer/frontend/graph_models.py")
    spec = spec_from_file_location("graph_models", str(file))
    assert spec is not None and spec.loader is not None
    module = sys.modules.setdefault("graph_models", module_from_spec(spec))
    spec.loader.exec_module(module)
    feature, error = module.Node.feature_node(layer=0, pos=7, feat_idx=3), module.Node.error_node(layer=3, pos=7)
    return f"{feature.node_id} and {error.node_id}"
