#!/usr/bin/env bash
# Expected: transformers reads the GGUF file of a Mixtral as a Mixtral, or refuses it, as it refuses other
#   architectures.
# Seen with transformers 5.23.0 and gguf 0.19.0: the file states the architecture llama with llama.expert_count;
#   it becomes a Llama with one MLP a layer, whose weights aren't in the file and are drawn at random.
# Output seen: LlamaForCausalLM, down_proj all ones False, twice the same False
# Why it matters: every expert is thrown away; the model speaks otherwise after each loading, with no more than a
#   report of missing keys.
# Source: transformers/integrations/ggml.py: the keys of llama have no expert_count.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  torch==2.13.0 transformers==5.23.0 gguf==0.19.0 accelerate==1.15.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import sys

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM


def write(path, architecture, keys, tensors):
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(f"{architecture}.{key}", value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


keys = {
    "context_length": 64,
    "embedding_length": 64,
    "block_count": 1,
    "feed_forward_length": 64,
    "attention.head_count": 1,
    "attention.head_count_kv": 1,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 500000.0,
    "rope.dimension_count": 64,
    "vocab_size": 32,
    "expert_count": 2,
    "expert_used_count": 1,
}
names = {"token_embd": (32, 64), "output_norm": (64,), "output": (32, 64)}
names |= {f"blk.0.attn_{part}": (64, 64) for part in ("q", "k", "v", "output")}
names |= {f"blk.0.{part}_norm": (64,) for part in ("attn", "ffn")}
names |= {f"blk.0.ffn_{part}_exps": (2, 64, 64) for part in ("gate", "up", "down")} | {"blk.0.ffn_gate_inp": (2, 64)}
tensors = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in names.items()}
write(f"{sys.argv[1]}/a.gguf", "llama", keys, tensors)
first, second = (AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file="a.gguf") for _ in range(2))
weights = [model.model.layers[0].mlp.down_proj.weight for model in (first, second)]
ones = bool((weights[0] == 1).all())
print(f"{type(first).__name__}, down_proj all ones {ones}, twice the same {torch.equal(*weights)}")
PYTHON
)
echo "$seen"
[ "$seen" = "LlamaForCausalLM, down_proj all ones False, twice the same False" ]
