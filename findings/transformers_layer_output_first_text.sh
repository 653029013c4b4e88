#!/usr/bin/env bash
# Expected: a forward hook on a decoder layer that sets output[0] to zero, as tutorials do, changes every text of a batch.
# Seen with transformers 5.23.0: most families return the states alone, so output[0] is the first text, and the others
#   pass unchanged; BLOOM, Falcon and GPT-J still return a tuple, whose first entry is the states of all.
# Output seen: llama changes [True, False], bloom changes [True, True]
# Why it matters: an ablation or a steering vector reaches one text of a batch and raises no error, since a broadcast
#   vector fits both shapes; a mean over the batch is off by the size of the batch.
# Source: transformers/models/llama/modeling_llama.py, LlamaDecoderLayer.forward;
#   transformers/models/bloom/modeling_bloom.py, BloomBlock.forward.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import torch
from transformers import BloomConfig, BloomForCausalLM, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
llama = LlamaForCausalLM(
    LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=31)
)
bloom = BloomForCausalLM(BloomConfig(hidden_size=16, n_layer=2, n_head=2, vocab_size=31))
ids = torch.tensor([[1, 2, 3], [4, 5, 6]])


def zero(layer, inputs, output):
    output[0][...] = 0


seen = []
for name, model, layer in (("llama", llama, llama.model.layers[0]), ("bloom", bloom, bloom.transformer.h[0])):
    with torch.no_grad():
        before = model.eval()(ids).logits
        layer.register_forward_hook(zero)
        changed = (model(ids).logits - before).abs().amax((1, 2)) > 1e-6
    seen.append(f"{name} changes {changed.tolist()}")
print(", ".join(seen))
PYTHON
)
echo "$seen"
[ "$seen" = "llama changes [True, False], bloom changes [True, True]" ]
