#!/usr/bin/env bash
# Expected: what safetensors.numpy.save accepts, safetensors.numpy.load reads.
# Seen with safetensors 0.8.0 and ml_dtypes 0.5.4: an array of ml_dtypes.bfloat16 is saved as BF16; load of the bytes
#   raises KeyError, while load_file of the same file returns it.
# Output seen: load KeyError 'BF16', load_file bfloat16
# Why it matters: JAX's arrays in half precision are such arrays; what a program kept can't be read again by the function
#   beside the one that kept it.
# Source: safetensors/numpy.py: load looks a type up in a table without BF16, load_file reads through safe_open.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6 ml_dtypes==0.5.4
seen=$("$folder/venv/bin/python" - "$folder/kept.safetensors" <<'PYTHON'
import pathlib
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import load, load_file, save

file = pathlib.Path(sys.argv[1])
file.write_bytes(save({"weight": np.ones(3, ml_dtypes.bfloat16)}))
try:
    first = str(load(file.read_bytes())["weight"].dtype)
except KeyError as error:
    first = f"KeyError {error}"
try:
    second = str(load_file(file)["weight"].dtype)
except Exception as error:
    second = f"{type(error).__name__} {error}"
print(f"load {first}, load_file {second}")
PYTHON
)
echo "$seen"
[ "$seen" = "load KeyError 'BF16', load_file bfloat16" ]
