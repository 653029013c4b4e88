#!/usr/bin/env bash
# Expected: eager and sdpa attention compute one function: hidden states agree to rounding at every position.
# Seen with transformers 5.23.0 and PyTorch 2.13.0: with padding in front, a causal model's padded positions attend to
#   nothing; sdpa gives them zeros, eager the average of all values. States there differ by far more than rounding,
#   those of the text agree. BERT, which isn't causal, agrees everywhere.
# Output seen: Llama: padding differs True, text differs False; BERT: padding differs False, text differs False
# Why it matters: a mean over all positions, or a comparison of saved states, depends on which attention was
#   installed.
# Source: transformers/masking_utils.py, transformers/integrations/sdpa_attention.py;
#   torch.nn.functional.scaled_dot_product_attention.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

SIZES = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
ids, mask = torch.tensor([[0, 0, 3, 4, 5]]), torch.tensor([[0, 0, 1, 1, 1]])


@torch.no_grad()
def differences(model):
    states = []
    for attention in ("eager", "sdpa"):
        model.set_attn_implementation(attention)
        states.append(model.eval()(ids, attention_mask=mask).last_hidden_state[0])
    off = (states[0] - states[1]).abs().amax(-1)
    return f"padding differs {bool(off[:2].max() > 1e-4)}, text differs {bool(off[2:].max() > 1e-4)}"


torch.manual_seed(0)
llama, bert = LlamaConfig(**SIZES, initializer_range=1.0), BertConfig(**SIZES, initializer_range=1.0)
print(f"Llama: {differences(LlamaModel(llama))}; BERT: {differences(BertModel(bert))}")
PYTHON
)
echo "$seen"
[ "$seen" = "Llama: padding differs True, text differs False; BERT: padding differs False, text differs False" ]
