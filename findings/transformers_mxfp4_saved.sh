#!/usr/bin/env bash
# Expected: a GPT-OSS that is loaded from MXFP4 with dequantize=True and saved is, loaded again, the same model.
# Seen with transformers 5.23.0: save_pretrained writes the dequantised experts under the names of packed ones,
#   down_proj_blocks and gate_up_proj_blocks, in float32, without scales, below a config.json without
#   quantization_config. from_pretrained of this directory finds no experts and draws them at random.
# Output seen: saved as down_proj_blocks gate_up_proj_blocks; all ones True, loaded again False
# Why it matters: the way to a GPT-OSS in ordinary numbers loses every expert, with no more than a report of missing
#   keys.
# Source: transformers/quantizers/quantizer_mxfp4.py, transformers/core_model_loading.py (the conversion undone at
#   saving).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 numpy==2.4.6
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, Mxfp4Config

base, packed, saved = (f"{sys.argv[1]}/{name}" for name in ("base", "packed", "saved"))
sizes = {"vocab_size": 11, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
config = GptOssConfig(**sizes, num_key_value_heads=1, head_dim=16, num_local_experts=2, num_experts_per_tok=1)
GptOssForCausalLM(config).save_pretrained(base)
tensors = load_file(f"{base}/model.safetensors")
for name in [name for name in tensors if name.endswith(("down_proj", "gate_up_proj"))]:
    experts, rows, columns = tensors.pop(name).shape
    tensors[f"{name}_blocks"] = torch.full((experts, columns, rows // 32, 16), 0x22, dtype=torch.uint8)
    tensors[f"{name}_scales"] = torch.full((experts, columns, rows // 32), 127, dtype=torch.uint8)
config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": []}
config.save_pretrained(packed)
save_file(tensors, f"{packed}/model.safetensors", metadata={"format": "pt"})
given = {"dtype": torch.float32, "quantization_config": Mxfp4Config(dequantize=True)}
first = GptOssForCausalLM.from_pretrained(packed, **given)
first.save_pretrained(saved)
again = GptOssForCausalLM.from_pretrained(saved)
with safe_open(f"{saved}/model.safetensors", framework="pt") as file:
    names = [name.rpartition(".")[2] for name in file.keys() if "proj_" in name and "bias" not in name]
ones = [bool((model.model.layers[0].mlp.experts.down_proj == 1).all()) for model in (first, again)]
print(f"saved as {' '.join(sorted(names))}; all ones {ones[0]}, loaded again {ones[1]}")
PYTHON
)
echo "$seen"
[ "$seen" = "saved as down_proj_blocks gate_up_proj_blocks; all ones True, loaded again False" ]
