#!/usr/bin/env bash
# Expected: the same arrays with the same metadata are the same bytes, so that a file's hash says whether it is the same.
# Seen with safetensors 0.8.0: of two metadata fields either one may stand first, another time in one process; with one
#   field, and whatever the number of arrays, the bytes are the same.
# Output seen: one field 1 file, two fields 2 files
# Why it matters: a hash of the file, as the Hub, DVC and caches take it, changes though nothing did. Keep one field, of
#   JSON, or hash the arrays.
# Source: the metadata of safetensors/src/tensor.rs, a map of Rust's standard library, whose order is drawn anew.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
seen=$("$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from safetensors.numpy import save

arrays = {name: np.ones(3, np.float32) for name in "abcdef"}
one = {save(arrays, {"run": "7"}) for _ in range(100)}
two = {save(arrays, {"run": "7", "step": "12"}) for _ in range(100)}
print(f"one field {len(one)} file, two fields {len(two)} files")
PYTHON
)
echo "$seen"
[ "$seen" = "one field 1 file, two fields 2 files" ]
