#!/usr/bin/env bash
# Expected: a model that transformers has dequantised from a GGUF file is an ordinary model, which save_pretrained
#   writes, as its documentation shows for a conversion back.
# Seen with transformers 5.23.0 and gguf 0.19.0: its weights are float32, even of a file in float32, and save_pretrained
#   raises that the model is quantized with gguf and not serializable.
# Output seen: float32 torch.float32, save_pretrained ValueError
# Why it matters: the documented way from a GGUF file to a directory ends in an error; the state must be loaded into a
#   model made anew.
# Source: transformers/modeling_utils.py (save_pretrained), transformers/quantizers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 gguf==0.19.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import sys

import gguf
import numpy as np
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
}
names = {"token_embd": (32, 64), "output_norm": (64,), "output": (32, 64)}
names |= {f"blk.0.attn_{part}": (64, 64) for part in ("q", "k", "v", "output")}
names |= {f"blk.0.{part}_norm": (64,) for part in ("attn", "ffn")}
names |= {f"blk.0.ffn_{part}": (64, 64) for part in ("gate", "up", "down")}
tensors = {f"{name}.weight": np.ones(shape, np.float32) for name, shape in names.items()}
write(f"{sys.argv[1]}/a.gguf", "llama", keys, tensors)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file="a.gguf")
try:
    model.save_pretrained(f"{sys.argv[1]}/saved")
    end = "done"
except ValueError:
    end = "ValueError"
print(f"float32 {next(model.parameters()).dtype}, save_pretrained {end}")
PYTHON
)
echo "$seen"
[ "$seen" = "float32 torch.float32, save_pretrained ValueError" ]
