#!/usr/bin/env bash
# Expected: a scan of matrix products in reverse gives, at each place, the product of its matrix with all later ones, in
#   their order.
# Seen with JAX 0.10.2 and 0.12.0.1: the function gets the later one first, so the product stands the other way round:
#   the last matrix on the left. Only a function that swaps its arguments gives the order in which they stand.
# Output seen: m0 m1 m2: False, m2 m1 m0: True, swapped m0 m1 m2: True
# Why it matters: a recurrence that is run in parallel from the end has transposed products, which have the right shape
#   and, of symmetric or commuting matrices, the right numbers.
# Source: jax/_src/lax/control_flow/loops.py, associative_scan (reverse flips, scans and flips again).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np

m = np.array([[[1, 1], [0, 1]], [[1, 0], [1, 1]], [[2, 0], [0, 1]]], np.float32)
first = jax.lax.associative_scan(jnp.matmul, m, reverse=True)[0]
swapped = jax.lax.associative_scan(lambda later, earlier: earlier @ later, m, reverse=True)[0]
forward, backward = m[0] @ m[1] @ m[2], m[2] @ m[1] @ m[0]
print(
    f"m0 m1 m2: {np.array_equal(first, forward)}, m2 m1 m0: {np.array_equal(first, backward)},"
    f" swapped m0 m1 m2: {np.array_equal(swapped, forward)}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "m0 m1 m2: False, m2 m1 m0: True, swapped m0 m1 m2: True" ]
