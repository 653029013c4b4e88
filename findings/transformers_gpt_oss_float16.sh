#!/usr/bin/env bash
# Expected: from_pretrained(dtype=torch.float16) gives a model in float16, as dtype=torch.bfloat16 gives one in
#   bfloat16.
# Seen with transformers 5.23.0: of a GPT-OSS the norms stay in float32 in float16, not in bfloat16, and
#   save_pretrained
#   writes a file of both dtypes below a config.json that states float16.
# Output seen: bfloat16: bfloat16, saved BF16; float16: float16 float32, saved F16 F32, stated float16
# Why it matters: a file that states float16 has tensors that aren't; another reader that goes by the stated dtype
#   rounds them, and computes otherwise than the model that was saved.
# Source: transformers/models/gpt_oss/modeling_gpt_oss.py (_keep_in_fp32_modules), transformers/modeling_utils.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 gguf==0.19.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import json
import sys

import torch
from safetensors import safe_open
from transformers import GptOssConfig, GptOssForCausalLM

sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
config = GptOssConfig(**sizes, num_key_value_heads=1, head_dim=4, num_local_experts=2, num_experts_per_tok=1)
GptOssForCausalLM(config).save_pretrained(f"{sys.argv[1]}/base")
parts = []
for dtype in ("bfloat16", "float16"):
    model = GptOssForCausalLM.from_pretrained(f"{sys.argv[1]}/base", dtype=getattr(torch, dtype))
    model.save_pretrained(f"{sys.argv[1]}/{dtype}")
    with safe_open(f"{sys.argv[1]}/{dtype}/model.safetensors", framework="pt") as file:
        saved = sorted({file.get_slice(name).get_dtype() for name in file.keys()}, reverse=dtype != "x")
    kinds = " ".join(sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()}))
    parts.append(f"{dtype}: {kinds}, saved {' '.join(sorted(saved))}")
with open(f"{sys.argv[1]}/float16/config.json") as file:
    print(f"{'; '.join(parts)}, stated {json.load(file)['dtype']}")
PYTHON
)
echo "$seen"
[ "$seen" = "bfloat16: bfloat16, saved BF16; float16: float16 float32, saved F16 F32, stated float16" ]
