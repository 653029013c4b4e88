#!/usr/bin/env bash
# Expected: jax.device_put of a NumPy array is a copy, as its documentation says of what it returns, so that writing into
#   the NumPy array afterwards changes no JAX array.
# Seen with JAX 0.10.2 on CPUs: memory that begins at a multiple of 64 bytes is shared, and other memory is copied: where
#   NumPy's allocator puts an array decides whether a JAX array changes. jnp.asarray of the same arrays copies.
# Output seen: device_put aligned 1 shifted 0, asarray aligned 0 shifted 0
# Why it matters: a loader that fills one buffer batch after batch changes the batches before, on some machines and sizes.
# Source: jax/_src/api.py, device_put (may_alias), and jaxlib's transfer of NumPy arrays to CPUs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np


def after_writing(put, shift):
    memory = np.zeros(1040, np.float32)
    first = (-memory.ctypes.data // 4) % 16 + shift
    array = memory[first : first + 1000]
    on_device = jax.block_until_ready(put(array))
    array[0] = 1
    return f"{float(on_device[0]):.0f}"


puts = {"device_put": jax.device_put, "asarray": jnp.asarray}
ends = {name: [after_writing(put, shift) for shift in (0, 1)] for name, put in puts.items()}
print(", ".join(f"{name} aligned {first} shifted {second}" for name, (first, second) in ends.items()))
PYTHON
)
echo "$seen"
[ "$seen" = "device_put aligned 1 shifted 0, asarray aligned 0 shifted 0" ]
