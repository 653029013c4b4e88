#!/usr/bin/env bash
# Expected: BertConfig(position_embedding_type="relative_key") makes a model with relative positions, as version 4
#   did, or raises.
# Seen with transformers 5.23.0: the field is kept in the configuration, the model has absolute positions alone,
#   nothing is raised or warned, and the logits are those of absolute.
# Output seen: kept relative_key, parameters of distances 0, warnings 0, as absolute True
# Why it matters: a checkpoint that was trained with relative positions loads and computes another function.
# Source: transformers/models/bert/modeling_bert.py, BertEmbeddings and BertSelfAttention.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import warnings

import torch
from transformers import BertConfig, BertModel

sizes = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@torch.no_grad()
def state(kind):
    torch.manual_seed(0)
    model = BertModel(BertConfig(**sizes, position_embedding_type=kind)).eval()
    return model, model(torch.tensor([[1, 2, 3, 4]])).last_hidden_state


with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    model, relative = state("relative_key")
distances = sum("distance" in name for name, _ in model.named_parameters())
print(
    f"kept {model.config.position_embedding_type}, parameters of distances {distances}, warnings {len(told)},"
    f" as absolute {torch.equal(relative, state('absolute')[1])}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "kept relative_key, parameters of distances 0, warnings 0, as absolute True" ]
