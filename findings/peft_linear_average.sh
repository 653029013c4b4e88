#!/usr/bin/env bash
# Expected: the mean of an adapter with itself, add_weighted_adapter with the weights .5 and .5, changes the model as the
#   adapter does; every combination_type says which approximation it makes of a sum.
# Seen with PEFT 0.21.2: "linear" adds both factors with the roots of the weights and multiplies the sums, so each
#   adapter's A meets the other one's B: the mean of one with itself changes twice as much, that of two unrelated ones
#   is off by almost its own size. "cat" is the sum exactly, "svd" the nearest one of the rank.
# Output seen: with itself linear 2.00, svd 1.00, cat 1.00; error of two: linear above .5, cat below .001
# Why it matters: averaging adapters in the way whose name is the plainest doubles their effect.
# Source: peft/tuners/lora/model.py, _generalized_task_arithmetic_weighted_adapter; peft/utils/merge_utils.py,
#   task_arithmetic.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 peft==0.21.2
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
base = LlamaForCausalLM(
    LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=31)
)
config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj"], init_lora_weights=False)
model = get_peft_model(base, config, adapter_name="one")
model.add_adapter("two", config)
layer = base.model.layers[0].self_attn.q_proj
one, two = map(layer.get_delta_weight, ("one", "two"))


def mean(adapters, kind):
    name = kind + "".join(adapters)
    model.add_weighted_adapter(list(adapters), [0.5, 0.5], name, combination_type=kind)
    return layer.get_delta_weight(name)


with torch.no_grad():
    itself = {
        kind: float((mean(("one", "one"), kind) * one).sum() / (one * one).sum()) for kind in ("linear", "svd", "cat")
    }
    right = (one + two) / 2
    error = {kind: float((mean(("one", "two"), kind) - right).norm() / right.norm()) for kind in ("linear", "cat")}
said = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in itself.items())
linear = "above .5" if error["linear"] > 0.5 else error["linear"]
cat = "below .001" if error["cat"] < 0.001 else error["cat"]
print(f"with itself {said}; error of two: linear {linear}, cat {cat}")
PYTHON
)
echo "$seen"
[ "$seen" = "with itself linear 2.00, svd 1.00, cat 1.00; error of two: linear above .5, cat below .001" ]
