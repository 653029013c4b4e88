#!/usr/bin/env bash
# Expected: an adapter that PEFT saved computes, when loaded, what it computed when it was trained.
# Seen with PEFT 0.21.2: of several keys in alpha_pattern that fit a module the first counts, and adapter_config.json
#   is written with sorted keys, so another may come first in the file. Of the two layers of this model one has
#   another scale after loading.
# Output seen: trained with q_proj first: scales 1 1, loaded: scales 10 1
# Why it matters: a general rule and an exception to it change places by being saved, and nothing is said.
# Source: peft/config.py (sort_keys=True), peft/utils/other.py (get_pattern_key), huggingface/peft.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 peft==0.21.2
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import sys

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def base():
    return LlamaForCausalLM(LlamaConfig(**sizes))


def scales(model):
    layers = model.base_model.model.model.layers
    return " ".join(f"{layer.self_attn.q_proj.scaling['default']:g}" for layer in layers)


patterns = {"q_proj": 2, "0.*q_proj": 20}
trained = get_peft_model(base(), LoraConfig(r=2, target_modules=["q_proj"], alpha_pattern=patterns))
trained.save_pretrained(sys.argv[1])
loaded = PeftModel.from_pretrained(base(), sys.argv[1])
print(f"trained with q_proj first: scales {scales(trained)}, loaded: scales {scales(loaded)}")
PYTHON
)
echo "$seen"
[ "$seen" = "trained with q_proj first: scales 1 1, loaded: scales 10 1" ]
