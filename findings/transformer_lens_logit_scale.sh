#!/usr/bin/env bash
# Expected: the parts of a logit that ActivationCache.logit_attrs gives sum to the logit, for a model without folded
#   norms and without biases, as they do for other families.
# Seen with TransformerLens 4.3.0, transformers 5.24.0 and PyTorch 2.13.0: Granite divides its logits by logits_scaling
#   and Cohere multiplies them by logit_scale; neither is in W_U, so that all parts are too large by that factor. The
#   bridge's own logits are right. It is loaded as it comes, without its mode of compatibility.
# Output seen: Granite: logits right True, parts over logit 4.00; Cohere: logits right True, parts over logit 4.00
# Why it matters: parts compared with a logit, or with those of another model, are off by a factor that nothing says;
#   Granite's checkpoints have 8 and more.
# Source: transformer_lens/ActivationCache.py (logit_attrs), model_bridge/bridge.py (W_U).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
packages="torch==2.13.0 transformers==5.24.0 transformer-lens==4.3.0"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check $packages
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import logging

import torch
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformers import CohereConfig, CohereForCausalLM, GraniteConfig, GraniteForCausalLM

logging.disable()
SIZES = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "initializer_range": 0.4}
SIZES |= {"num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
ids = torch.tensor([[5, 7, 9, 3]])


@torch.no_grad()
def ratio(model):
    bridge = build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
    logits, cache = bridge.run_with_cache(ids)
    parts = cache.logit_attrs(cache.decompose_resid(pos_slice=-1), tokens=7, pos_slice=-1)
    right = torch.allclose(logits, model(ids).logits, atol=1e-4)
    return f"logits right {right}, parts over logit {parts.sum() / logits[0, -1, 7]:.2f}"


torch.manual_seed(0)
granite = GraniteForCausalLM(GraniteConfig(**SIZES, logits_scaling=4.0)).eval()
cohere = CohereForCausalLM(CohereConfig(**SIZES, logit_scale=0.25)).eval()
print(f"Granite: {ratio(granite)}; Cohere: {ratio(cohere)}")
PYTHON
)
echo "$seen"
[ "$seen" = "Granite: logits right True, parts over logit 4.00; Cohere: logits right True, parts over logit 4.00" ]
