#!/usr/bin/env bash
# Expected: two configurations that are made with one dictionary of rope_scaling and with two values of rope_theta have
#   these two values: a constructor reads its arguments.
# Seen with transformers 5.23.0: the constructor keeps the caller's dictionary as rope_parameters and writes rope_theta
#   into it, unless it has one. The second configuration finds the first one's there, and its own argument is dropped.
# Output seen: first 10000.0, second 10000.0, in the dictionary 10000.0
# Why it matters: a loop over bases of the frequencies with one dictionary computes with the first base alone, without a
#   message; which value counts depends on what was made before.
# Source: transformers/modeling_rope_utils.py, convert_rope_params_to_dict of RotaryEmbeddingConfigMixin.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
from transformers import LlamaConfig

scaling = {"rope_type": "linear", "factor": 2.0}
first, second = (
    LlamaConfig(rope_theta=theta, rope_scaling=scaling).rope_parameters["rope_theta"] for theta in (10000.0, 500000.0)
)
print(f"first {first}, second {second}, in the dictionary {scaling.get('rope_theta')}")
PYTHON
)
echo "$seen"
[ "$seen" = "first 10000.0, second 10000.0, in the dictionary 10000.0" ]
