#!/usr/bin/env bash
# Expected: config.rope_theta = 100 changes the rotary frequencies of a model that is made afterwards, or raises.
# Seen with transformers 5.23.0: the frequencies come from rope_parameters, where the value given to the constructor
#   stays; the attribute is new, changes nothing, and is written to config.json beside the value that counts.
# Output seen: attribute 100.0, second frequency as of 500000 True, config.json rope_theta 100.0 and rope_parameters
#   500000.0
# Why it matters: scripts that set it, as with version 4, compute with the old frequencies; other readers of the file
#   take the wrong one.
# Source: transformers/modeling_rope_utils.py, transformers/models/llama/configuration_llama.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import json
import sys

from transformers import LlamaConfig, LlamaModel

sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
config = LlamaConfig(**sizes, rope_theta=500000.0)
config.rope_theta = 100.0
model = LlamaModel(config)
model.save_pretrained(sys.argv[1])
with open(f"{sys.argv[1]}/config.json") as file:
    written = json.load(file)
as_given = bool(abs(model.rotary_emb.inv_freq[1] - 500000.0**-0.5) < 1e-6)
print(
    f"attribute {config.rope_theta}, second frequency as of 500000 {as_given}, config.json rope_theta"
    f" {written['rope_theta']} and rope_parameters {written['rope_parameters']['rope_theta']}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "attribute 100.0, second frequency as of 500000 True, config.json rope_theta 100.0 and rope_parameters 500000.0" ]
