"""Write `tests/golden`: tiny random checkpoints of every family, and what the reference computes.

Run `.venv-reference/bin/python -m tests.parity.goldens`, in the environment of `make parity`.

They are for the tests that need no torch. A base case has the configuration as the newest `transformers` saves it; the
others have the older, shorter one.
"""

import shutil
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from .cases import TOKENS, Case, inputs, make_case, reference
from .chats import write_texts
from .families import FAMILIES
from .tokenizers import write_ids

GOLDEN = Path(__file__).parents[1] / "golden"
REAL = TOKENS - 3
"""Number of tokens in front of the padding."""

LARGER = {"hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 3}
GOLDENS: dict[str, Case] = {
    **{family.replace("-", "_"): make_case(family, {}) for family in FAMILIES},
    "gpt2": make_case("gpt2", {"n_embd": 12, "n_layer": 3, "n_head": 3}),
    "gpt2-untied-relu": make_case(
        "gpt2",
        {
            "n_embd": 12,
            "n_head": 2,
            "n_inner": 20,
            "activation_function": "relu",
            "tie_word_embeddings": False,
        },
    ),
    "bert": make_case("bert", LARGER, "hidden"),
    "bert-silu": make_case(
        "bert", {"hidden_size": 12, "num_attention_heads": 2, "intermediate_size": 20, "hidden_act": "silu"}, "hidden"
    ),
    "bert-masked": make_case("bert", {}, "masked"),
    **{
        f"{family}-classes": make_case(family, {}, "classes")
        for family in ("gpt2", "bert", "roberta", "distilbert", "llama", "vit", "albert")
    },
    "modernbert-classes": make_case("modernbert", {"classifier_pooling": "mean"}, "classes"),
    **{
        f"{family}-{switch.replace(', ', '-').replace(' ', '-')}": make_case(
            family, FAMILIES[family].switches[switch], None, switch
        )
        for family, switch in [
            ("gpt2", "scale_attn_by_inverse_layer_idx"),
            ("gpt_neox", "sequential"),
            ("llama", "dynamic"),
            ("llama", "llama3, newer"),
            ("llama", "yarn, newer"),
            ("mistral", "window"),
            ("qwen2", "max_window_layers"),
            ("qwen3", "longrope"),
            ("mixtral", "every expert"),
            ("vit", "without attention bias"),
            ("gemma3_text", "linear"),
            ("qwen3_moe", "decoder_sparse_step"),
            ("phi3", "longrope"),
            ("opt", "post-norm"),
            ("albert", "num_hidden_groups"),
        ]
    },
}


def write_tokenizer(directory: Path, *, encoder: bool) -> None:
    """Write a tokenizer of whole words w3, w4, …; an encoder's puts [CLS] and [SEP] around the text and knows [MASK].

    Args:
        directory: where it is written.
        encoder: whether it is an encoder's.
    """
    words = ["[UNK]", "[CLS]", "[SEP]"] + [f"w{i}" for i in range(3, 61)]
    if encoder:
        words[-1] = "[MASK]"
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if encoder:
        special = [("[CLS]", 1), ("[SEP]", 2)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
        )
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}\n')


def write(name: str, case: Case) -> None:
    """Write one checkpoint and its outputs.

    Args:
        name: its directory.
        case: the case.
    """
    directory, given = GOLDEN / name, inputs(case)
    shutil.rmtree(directory, ignore_errors=True)
    found = reference(case, directory)
    outputs = {
        "pixels" if case.family == "vit" else "ids": given,
        "float32": found["float32"].value,
        "float64": found["float64"].value,
        "streams": found["float64"].streams,
    }
    if case.family != "vit":
        # Padding changes nothing: the first tokens are what they are without it.
        outputs["padded"] = reference(case, directory, given[:REAL])["float64"].value
        write_tokenizer(directory, encoder="masked" in FAMILIES[case.family].heads)
    np.savez(directory / "outputs.npz", **outputs)
    (directory / "model.safetensors").chmod(0o644)
    saved = directory / "saved.json"
    if case.switch == "base":
        saved.rename(directory / "config.json")
    else:
        saved.unlink()


def main() -> None:
    """Write every checkpoint."""
    for name, case in GOLDENS.items():
        write(name, case)
        size = sum(file.stat().st_size for file in (GOLDEN / name).iterdir())
        print(f"{name:40} {size / 1024:6.0f} KiB")
    write_ids()
    write_texts()


if __name__ == "__main__":
    main()
