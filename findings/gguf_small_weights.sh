#!/usr/bin/env bash
# Expected: eight bits keep weights more exactly than four, and the relative error of a block does not depend on the size
#   of its weights, since each has a scale of its own.
# Seen with gguf 0.19.0: the scale is a float16, and in Q8_0 it is the largest weight by 127. Of normal weights of
#   standard deviation 1e-6 Q8_0 keeps nothing, Q4_0, whose scale is the largest one by 8, keeps them to 10 %; at 1e-5
#   both are alike.
# Output seen: Q8_0 0.005 0.011 0.095 0.999, Q4_0 0.086 0.086 0.086 0.105 at 1, 1e-4, 1e-5, 1e-6
# Why it matters: a matrix of small numbers, such as a scaled-down head or an adapter that was merged into its factors,
#   is lost in the format that is taken for nearly exact, and survives in a coarser one.
# Source: gguf/quants.py, Q8_0.quantize_blocks and Q4_0.quantize_blocks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

weights = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)


def errors(kind):
    for size in (1, 1e-4, 1e-5, 1e-6):
        scaled = weights * np.float32(size)
        error = dequantize(quantize(scaled, kind), kind) - scaled
        yield f"{np.linalg.norm(error) / np.linalg.norm(scaled):.3f}"


kinds = (GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0)
print(", ".join(f"{kind.name} {' '.join(errors(kind))}" for kind in kinds), "at 1, 1e-4, 1e-5, 1e-6")
PYTHON
)
echo "$seen"
[ "$seen" = "Q8_0 0.005 0.011 0.095 0.999, Q4_0 0.086 0.086 0.086 0.105 at 1, 1e-4, 1e-5, 1e-6" ]
