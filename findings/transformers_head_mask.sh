#!/usr/bin/env bash
# Expected: head_mask of zeros takes every head out of a BERT or a GPT-2, as in version 4, or raises.
# Seen with transformers 5.23.0: the argument is gone from the models, and they take any keyword they don't know: the output
#   is the same to the bit, and nothing is warned. A misspelt attention_mask is taken likewise, and the padding is read.
# Output seen: BertModel head_mask 0 atention_mask 0 attention_mask above .001, GPT2Model head_mask 0 atention_mask 0
#   attention_mask above .001
# Why it matters: every head looks as if it could be removed without loss, and a text is read with its padding.
# Source: transformers/models/bert/modeling_bert.py and gpt2/modeling_gpt2.py, forward (**kwargs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

ids, mask = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[1, 0, 1, 1]])
bert = BertConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=61)
gpt2 = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=61)


def change(model, **more):
    return float((model(ids, **more)[0] - model(ids)[0]).abs().max())


for model_class, config in ((BertModel, bert), (GPT2Model, gpt2)):
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        gone = change(model, head_mask=torch.zeros(2, 4)), change(model, atention_mask=mask)
        known = change(model, attention_mask=mask)
    known = "above .001" if known > 0.001 else known
    print(f"{model_class.__name__} head_mask {gone[0]:.3g} atention_mask {gone[1]:.3g} attention_mask {known}")
PYTHON
)
echo "$seen"
[ "$seen" = "BertModel head_mask 0 atention_mask 0 attention_mask above .001
GPT2Model head_mask 0 atention_mask 0 attention_mask above .001" ]
