"""Make the golden checkpoints and outputs with the reference implementation.

    pip install torch transformers && python tests/golden/make.py

Writes tiny random checkpoints of both families and what Hugging Face `transformers` computes with them, in float32 and
float64, so that the tests need no torch.
"""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

HERE = Path(__file__).parent
TOKENS = 9
VOCAB = 61

CHECKPOINTS = {
    "gpt2": (
        GPT2LMHeadModel,
        GPT2Config(vocab_size=VOCAB, n_positions=16, n_embd=12, n_layer=3, n_head=3, bos_token_id=0, eos_token_id=0),
    ),
    "gpt2-untied-relu": (
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=VOCAB,
            n_positions=16,
            n_embd=12,
            n_layer=2,
            n_head=2,
            n_inner=20,
            activation_function="relu",
            tie_word_embeddings=False,
            bos_token_id=0,
            eos_token_id=0,
        ),
    ),
    "bert": (
        BertModel,
        BertConfig(
            vocab_size=VOCAB,
            hidden_size=12,
            num_hidden_layers=3,
            num_attention_heads=3,
            intermediate_size=24,
            max_position_embeddings=16,
        ),
    ),
    "bert-silu": (
        BertModel,
        BertConfig(
            vocab_size=VOCAB,
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=20,
            max_position_embeddings=16,
            hidden_act="silu",
        ),
    ),
}


def write_tokenizer(directory: Path, *, encoder: bool) -> None:
    """Write a tokenizer of whole words w1, w2, …; an encoder's puts [CLS] and [SEP] around the text."""
    words = ["[UNK]", "[CLS]", "[SEP]"] + [f"w{i}" for i in range(3, VOCAB)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if encoder:
        special = [("[CLS]", 1), ("[SEP]", 2)]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    tokenizer.save(str(directory / "tokenizer.json"))


def main() -> None:
    """Write every checkpoint and its outputs."""
    torch.manual_seed(0)
    for name, (architecture, config) in CHECKPOINTS.items():
        model = architecture(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        directory = HERE / name
        model.save_pretrained(directory)
        (directory / "generation_config.json").unlink(missing_ok=True)
        write_tokenizer(directory, encoder=name.startswith("bert"))
        ids = torch.randint(3, VOCAB, (TOKENS,))
        padding = torch.arange(TOKENS) < TOKENS - 3
        outputs = {"ids": ids.numpy(), "padding": padding.numpy()}
        for dtype in (torch.float32, torch.float64):
            model = model.to(dtype)
            with torch.no_grad():
                for key, mask in (("plain", torch.ones(TOKENS, dtype=torch.bool)), ("padded", padding)):
                    result = model(ids[None], attention_mask=mask[None].long())
                    hidden = result.logits if name.startswith("gpt2") else result.last_hidden_state
                    outputs[f"{key}_{str(dtype).removeprefix('torch.')}"] = hidden[0].numpy()
        np.savez(directory / "outputs.npz", **outputs)
        print(name, {key: value.shape for key, value in outputs.items()})


if __name__ == "__main__":
    main()
