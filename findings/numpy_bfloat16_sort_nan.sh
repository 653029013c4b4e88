#!/usr/bin/env bash
# Expected: numpy.sort puts NaN last in bfloat16, as in every floating-point type of its own.
# Seen with NumPy 2.4.6 and ml_dtypes 0.6.0: NaN is compared by <, which is false either way, so that it stays where it is
#   and the numbers around it aren't sorted; argsort, unique, partition and quantiles follow.
# Output seen: float16 [0.0, 1.0, 2.0, 3.0, nan, nan], bfloat16 [3.0, nan, 1.0, 2.0, nan, 0.0], argsort [0, 1, 2, 3, 4, 5]
# Why it matters: the smallest scores, for example for pruning, are any scores as soon as one of them is NaN.
# Source: ml_dtypes, the compare function that it registers with NumPy for its types (NPyCustomFloat_CompareFunc).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import ml_dtypes
import numpy as np

x = np.array([3, np.nan, 1, 2, np.nan, 0], np.float32)
own, short = x.astype(np.float16), x.astype(ml_dtypes.bfloat16)
sorts = [np.sort(each).astype(float).tolist() for each in (own, short)]
print(f"float16 {sorts[0]}, bfloat16 {sorts[1]}, argsort {np.argsort(short).tolist()}")
PYTHON
)
echo "$seen"
[ "$seen" = "float16 [0.0, 1.0, 2.0, 3.0, nan, nan], bfloat16 [3.0, nan, 1.0, 2.0, nan, 0.0], argsort [0, 1, 2, 3, 4, 5]" ]
