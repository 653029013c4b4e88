#!/usr/bin/env bash
# Expected: one whole number divided by zero is 0, as in NumPy, or -1, as XLA divides.
# Seen with JAX 0.10.2: 1 // 0 is -2, -1 // 0 is -2 too, and 1 % 0 is 0, where XLA's own quotient and remainder are -1
#   and 1. JAX 0.12.0.1 does the same. In float32 1 // 0 is nan in 0.10.0, and inf from 0.10.2 on.
# Output seen: -2 -2 0, XLA -1 1
# Why it matters: a mean of whole numbers over no entries is no error, and as an index it is the last but one.
# Source: jax/_src/numpy/ufuncs.py, floor_divide, which corrects XLA's quotient by the signs and the remainder.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax.numpy as jnp
from jax import lax

one, zero = jnp.int32(1), jnp.int32(0)
print(f"{one // zero} {-one // zero} {one % zero}, XLA {lax.div(one, zero)} {lax.rem(one, zero)}")
PYTHON
)
echo "$seen"
[ "$seen" = "-2 -2 0, XLA -1 1" ]
