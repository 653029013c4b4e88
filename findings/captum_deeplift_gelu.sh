#!/usr/bin/env bash
# Expected: DeepLift's parts sum to the difference of the outputs for a network of linear layers and one activation,
#   or it says that it has no rule.
# Seen with captum 0.9.0 and PyTorch 2.13.0: nn.GELU and nn.SiLU are in no table of rules; their gradient at the input
#   is taken without a word, and the sum is off. With ReLU, Tanh and Softplus it is exact.
# Output seen: ReLU True, Tanh True, Softplus True, GELU False, SiLU False
# Why it matters: nearly every Transformer has one of the two, and the delta isn't returned unless it is asked for.
# Source: captum/attr/_core/deep_lift.py, SUPPORTED_NON_LINEAR.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 captum==0.9.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import torch
from captum.attr import DeepLift
from torch import nn


def sums(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 1))
    x, baseline = torch.randn(1, 4), torch.zeros(1, 4)
    off = DeepLift(model).attribute(x, baseline).sum() - (model(x) - model(baseline)).sum()
    return bool(off.abs() < 1e-5)


print(", ".join(f"{kind.__name__} {sums(kind)}" for kind in (nn.ReLU, nn.Tanh, nn.Softplus, nn.GELU, nn.SiLU)))
PYTHON
)
echo "$seen"
[ "$seen" = "ReLU True, Tanh True, Softplus True, GELU False, SiLU False" ]
