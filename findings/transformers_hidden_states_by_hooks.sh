#!/usr/bin/env bash
# Expected: output_hidden_states shows the states that the next layer reads, or those that the layer computed, where a
#   forward hook on a layer replaces its output: one of the two, always.
# Seen with transformers 5.23.0: the states are collected by hooks of its own, which are registered when states are asked
#   for the first time. Hooks run in the order of their registration: a layer shows the replaced output if nobody had
#   asked for states before one's own hook was registered, and the unchanged one if somebody had.
# Output seen: largest state of a layer set to zero: asked for the first time 0.000, asked before too 0.052
# Why it matters: reading hidden states to check that an intervention took place answers by what was run before it; a
#   comparison that runs the model unchanged first sees differences begin one layer too late.
# Source: transformers/utils/output_capturing.py, install_output_capuring_hook.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, vocab_size=31)
ids = torch.tensor([[1, 2, 3]])


def largest(asked_before):
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        if asked_before:
            model(ids, output_hidden_states=True)
        model.model.layers[1].register_forward_hook(lambda layer, inputs, output: output * 0)
        return float(model(ids, output_hidden_states=True).hidden_states[2].abs().max())


print(
    f"largest state of a layer set to zero: asked for the first time {largest(False):.3f},"
    f" asked before too {largest(True):.3f}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "largest state of a layer set to zero: asked for the first time 0.000, asked before too 0.052" ]
