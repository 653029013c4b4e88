#!/usr/bin/env bash
# Expected: a sum over the first axis of an array takes as long as adding its rows: both read every number once.
# Seen with JAX 0.10.2 on x86-64 CPUs: nine rows of 16,384 numbers are summed about as fast as they are added, nine of
#   262,144 take some sixty times as long (12.5 ms to 0.2), and a maximum over that axis thirty times; the sum over the
#   last axis of as many numbers is as fast as adding. A product with a vector of ones gives the sum at the speed of
#   adding. With JAX 0.12.0.1 all of them are.
# Output seen: rows of 16384 within 5 times, rows of 262144 beyond 10 times
# Why it matters: a sum over attention heads, `[heads, queries, keys]`, is of this kind. In the contrast of two texts of
#   512 tokens such a sum took more time than both products with the values.
# Source: jaxlib 0.10.2, the reductions that XLA's CPU compiler gives to its library of fused kernels (`ynn_fusion` in
#   the compiled text); measured.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/summed.py" <<'PYTHON'
import functools
import operator
import time

import jax
import jax.numpy as jnp


def seconds(function, rows):
    """Return the shortest of several runs: what else a machine does only makes them longer."""
    compiled = jax.jit(function)
    compiled(rows).block_until_ready()
    times = []
    for _ in range(30):
        began = time.perf_counter()
        compiled(rows).block_until_ready()
        times.append(time.perf_counter() - began)
    return min(times)


said = []
for length in (16_384, 262_144):
    rows = jax.random.normal(jax.random.key(0), (9, length))
    ratio = seconds(lambda x: x.sum(0), rows) / seconds(lambda x: functools.reduce(operator.add, x), rows)
    said.append(f"rows of {length} {'within 5' if ratio < 5 else 'beyond 10' if ratio > 10 else 'between 5 and 10'} times")
print(", ".join(said))
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/summed.py" 2> /dev/null)
echo "$seen"
[ "$seen" = "rows of 16384 within 5 times, rows of 262144 beyond 10 times" ]
