#!/usr/bin/env bash
# Expected: eager and sdpa attention of a Falcon with ALiBi compute one function, as they do for one with rotary positions.
# Seen with transformers 5.23.0: the bias of positions is put into the mask of attention; sdpa adds the mask alone, eager
#   the mask and the bias once more. With half of the slopes, whose sum is that of one bias, eager has the numbers of sdpa.
# Output seen: ALiBi differs, rotary agrees, ALiBi with half of the slopes in eager agrees
# Why it matters: asking for attentions, or for eager attention as many tools for interpretation do, gives another model.
# Source: transformers/models/falcon/modeling_falcon.py, FalconModel.forward (causal_mask) and FalconAttention.forward.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
from unittest.mock import patch

import torch
from transformers import FalconConfig, FalconForCausalLM
from transformers.models.falcon import modeling_falcon

ids, bias = torch.arange(5, 17)[None], modeling_falcon.build_alibi_tensor


def logits(kind, alibi):
    torch.manual_seed(0)
    config = FalconConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=61, alibi=alibi, initializer_range=0.3
    )
    model = FalconForCausalLM._from_config(config, attn_implementation=kind).eval()
    with torch.no_grad():
        return model(ids).logits


def said(difference):
    error = float(difference.abs().max())
    return "agrees" if error < 1e-4 else "differs" if error > 1e-2 else error


alibi, rotary = (said(logits("eager", kind) - logits("sdpa", kind)) for kind in (True, False))
once = logits("sdpa", True)
with patch.object(modeling_falcon, "build_alibi_tensor", lambda *args, **more: bias(*args, **more) / 2):
    half = said(logits("eager", True) - once)
print(f"ALiBi {alibi}, rotary {rotary}, ALiBi with half of the slopes in eager {half}")
PYTHON
)
echo "$seen"
[ "$seen" = "ALiBi differs, rotary agrees, ALiBi with half of the slopes in eager agrees" ]
