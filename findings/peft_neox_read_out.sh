#!/usr/bin/env bash
# Expected: PEFT saves the module that modules_to_save names, by the name that it has in the checkpoint, or says that there
#   is none.
# Seen with PEFT 0.21.2 and transformers 5.23.0: GPT-NeoX's checkpoint calls its read-out embed_out and the model calls it
#   lm_head; modules_to_save=["embed_out"] finds nothing, trains and saves nothing of it, and raises nothing.
# Output seen: checkpoint embed_out.weight, saved as embed_out: nothing, saved as lm_head: base_model.model.lm_head.weight
# Why it matters: recipes written before the module was renamed lose the trained read-out, and the adapter loads.
# Source: transformers/models/gpt_neox/modeling_gpt_neox.py; peft/tuners/tuners_utils.py, huggingface/peft.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 peft==0.21.2
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import sys

from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

folder = sys.argv[1]
sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def names(file, *left_out):
    with safe_open(file, "np") as stored:
        return [name for name in stored.keys() if not any(part in name for part in left_out)]


GPTNeoXForCausalLM(GPTNeoXConfig(**sizes)).save_pretrained(folder)
found = [f"checkpoint {', '.join(names(f'{folder}/model.safetensors', 'gpt_neox'))}"]
for module in ("embed_out", "lm_head"):
    settings = LoraConfig(target_modules=["query_key_value"], modules_to_save=[module])
    get_peft_model(GPTNeoXForCausalLM(GPTNeoXConfig(**sizes)), settings).save_pretrained(f"{folder}/{module}")
    kept = names(f"{folder}/{module}/adapter_model.safetensors", "lora_")
    found.append(f"saved as {module}: {', '.join(kept) or 'nothing'}")
print(", ".join(found))
PYTHON
)
echo "$seen"
[ "$seen" = "checkpoint embed_out.weight, saved as embed_out: nothing, saved as lm_head: base_model.model.lm_head.weight" ]
