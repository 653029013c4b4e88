#!/usr/bin/env bash
# Expected: a NumPy array that is a transpose is written by safetensors.numpy.save by its numbers, as versions 0.5 to 0.7
#   write it, or refused, as PyTorch tensors are that are not contiguous.
# Seen with safetensors 0.8.0: the memory of the array is written as it lies there, under the shape of the transpose, so
#   the file holds a matrix with the right numbers in wrong places.
# Output seen: given [[0, 3], [1, 4], [2, 5]], read [[0, 1], [2, 3], [4, 5]]
# Why it matters: weights are stored transposed in half of all formats; a converter that writes array.T makes another
#   model, of which every shape is right, after an update.
# Source: safetensors/numpy.py, _flatten (in 0.7.0 save calls tobytes); the docstring asks for contiguous arrays.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import numpy as np
from safetensors.numpy import load, save

matrix = np.arange(6).reshape(2, 3).T
read = load(save({"m": matrix}))["m"]
print(f"given {matrix.tolist()}, read {read.tolist()}")
PYTHON
)
echo "$seen"
[ "$seen" = "given [[0, 3], [1, 4], [2, 5]], read [[0, 1], [2, 3], [4, 5]]" ]
