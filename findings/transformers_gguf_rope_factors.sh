#!/usr/bin/env bash
# Expected: transformers reads the GGUF file of a Llama 3.1 as the model that it was written from, or refuses it.
# Seen with transformers 5.23.0 and gguf 0.19.0: the file has the slower rotations of Llama 3.1 in a tensor
#   rope_freqs.weight, as llama.cpp writes them and reads them. transformers leaves the tensor out and sets
#   rope_type "default"; every weight is equal, the frequencies are those of Llama 3.
# Output seen: maximal ratio of frequencies 8, read 1; weights equal True
# Why it matters: texts are continued with other logits than by llama.cpp or by the original directory, the more the
#   longer they are, and nothing is said.
# Source: transformers/modeling_gguf_pytorch_utils.py, transformers/integrations/ggml.py (no key and no tensor of
#   them).
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
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


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


sizes = {"vocab_size": 32, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
plain, slowed = (
    LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters={"rope_theta": 500000.0, **scaling}))
    for scaling in ({"rope_type": "default"}, {"rope_type": "llama3", **llama3})
)
ratio = (plain.model.rotary_emb.inv_freq / slowed.model.rotary_emb.inv_freq).numpy()
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
names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
tensors = {"rope_freqs.weight": ratio}
for name, tensor in slowed.state_dict().items():
    moved = tensor.reshape(2, 32, 64).swapaxes(0, 1).reshape(64, 64) if "q_proj" in name or "k_proj" in name else tensor
    tensors[names.get_name(name, (".weight",))] = np.ascontiguousarray(moved.numpy())
write(f"{sys.argv[1]}/a.gguf", "llama", keys, tensors)
read = AutoModelForCausalLM.from_pretrained(sys.argv[1], gguf_file="a.gguf")
seen = (plain.model.rotary_emb.inv_freq / read.model.rotary_emb.inv_freq).max()
equal = all(torch.equal(tensor, read.state_dict()[name]) for name, tensor in slowed.state_dict().items())
print(f"maximal ratio of frequencies {ratio.max():g}, read {seen:g}; weights equal {equal}")
PYTHON
)
echo "$seen"
[ "$seen" = "maximal ratio of frequencies 8, read 1; weights equal True" ]
