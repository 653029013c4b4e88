#!/usr/bin/env bash
# Expected: jnp.mean of an array of ones is 1 in every floating-point type.
# Seen with JAX 0.10.2: the number of entries is rounded to the array's type before the division. Of 1,024 ones the
#   mean is nan in float8_e4m3fn, whose largest number is 448.
# Output seen: float8_e4m3fn nan, bfloat16 1, float16 1
# Why it matters: scales of a quantised tensor that are computed in its own type are nan without a warning.
# Source: jax/_src/numpy/reductions.py, mean.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax.numpy as jnp

KINDS = (jnp.float8_e4m3fn, jnp.bfloat16, jnp.float16)
print(", ".join(f"{jnp.dtype(kind).name} {float(jnp.mean(jnp.ones(1024, kind))):g}" for kind in KINDS))
PYTHON
)
echo "$seen"
[ "$seen" = "float8_e4m3fn nan, bfloat16 1, float16 1" ]
