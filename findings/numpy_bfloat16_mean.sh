#!/usr/bin/env bash
# Expected: NumPy's mean of an array of ones is 1, as of float16, for which it sums in single precision.
# Seen with NumPy 2.4.6 and ml_dtypes 0.6.0: sum, mean, var and cumsum of bfloat16 add in bfloat16, one number after
#   the other, and stand still at 256. The mean of 1,024 ones is .25 and their variance .25; dot and norm are right.
# Output seen: bfloat16: sum 256, mean 0.25, var 0.25, dot 1024, norm 32; float16: sum 1024, mean 1, var 0, dot 1024,
#   norm 32
# Why it matters: statistics of a checkpoint's weights that are read as NumPy arrays are wrong without a warning.
# Source: numpy/_core/_methods.py (a wider sum for float16 alone); the loops that ml_dtypes registers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import ml_dtypes
import numpy as np


def numbers(dtype):
    ones = np.ones(1024, dtype)
    functions = {"sum": np.sum, "mean": np.mean, "var": np.var, "dot": lambda x: x @ x, "norm": np.linalg.norm}
    return ", ".join(f"{name} {float(f(ones)):g}" for name, f in functions.items())


print(f"bfloat16: {numbers(ml_dtypes.bfloat16)}; float16: {numbers(np.float16)}")
PYTHON
)
echo "$seen"
[ "$seen" = "bfloat16: sum 256, mean 0.25, var 0.25, dot 1024, norm 32; float16: sum 1024, mean 1, var 0, dot 1024, norm 32" ]
