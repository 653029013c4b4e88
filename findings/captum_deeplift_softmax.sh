#!/usr/bin/env bash
# Expected: DeepLift's parts of one input are the same whichever other inputs stand in the batch, and sum to the
#   difference for nn.Softmax, which is in its table of rules.
# Seen with captum 0.9.0 and PyTorch 2.13.0: the rule subtracts the mean of its multipliers over the whole batch, inputs
#   and baselines together, so that another input changes the parts; and no mean but that of one row would keep the sum.
#   With nn.Tanh in its place the parts don't change, and sum.
# Output seen: Softmax: difference 0.06, alone -0.38, in a batch -0.16; Tanh: difference -0.32, alone -0.32, in a batch -0.32
# Why it matters: attention and classifiers end in a softmax, and an explanation depends on the size of the batch.
# Source: captum/attr/_core/deep_lift.py, softmax.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 captum==0.9.0
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import torch
from captum.attr import DeepLift
from torch import nn


def sums(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), activation, nn.Linear(4, 1)).double()
    x, baseline, other = (2 * torch.randn(1, 4).double() for _ in range(3))
    alone = DeepLift(model).attribute(x, baseline).sum()
    beside = DeepLift(model).attribute(torch.cat([x, other]), torch.cat([baseline, baseline]))[0].sum()
    difference = model(x).item() - model(baseline).item()
    return f"difference {difference:.2f}, alone {alone:.2f}, in a batch {beside:.2f}"


print(f"Softmax: {sums(nn.Softmax(-1))}; Tanh: {sums(nn.Tanh())}")
PYTHON
)
echo "$seen"
expected="Softmax: difference 0.06, alone -0.38, in a batch -0.16; Tanh: difference -0.32, alone -0.32, in a batch -0.32"
[ "$seen" = "$expected" ]
