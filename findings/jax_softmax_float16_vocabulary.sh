#!/usr/bin/env bash
# Expected: a softmax subtracts the largest number so that nothing overflows, and its results sum to 1 in every dtype.
# Seen with JAX 0.10.2 and 0.12.0.1: the sum of the exponentials is brought back to float16 before the division. Where
#   more than 65,504 numbers are about equal it is infinite: every probability is 0, every log-probability minus
#   infinity. jnp.mean of as many ones is 1, since it divides before it rounds; jnp.nanmean is NaN.
# Output seen: 60000 numbers sum to 1.00, 70000 to 0.00, log-probability -inf, mean 1.0, nanmean nan
# Why it matters: vocabularies have 100,000 to 260,000 tokens; a model that is sure of nothing, such as an untrained one
#   or one at a high temperature, has no distribution in float16, and its loss is infinite.
# Source: jax/_src/nn/functions.py, _softmax; jax/_src/numpy/reductions.py, nanmean.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp


def alike(count, value=0):
    return jnp.full(count, value, jnp.float16)


few, many = (jax.nn.softmax(alike(count)).astype(jnp.float32).sum() for count in (60_000, 70_000))
log = jax.nn.log_softmax(alike(70_000))[0]
ones = alike(70_000, 1)
print(
    f"60000 numbers sum to {few:.2f}, 70000 to {many:.2f}, log-probability {log},"
    f" mean {jnp.mean(ones)}, nanmean {jnp.nanmean(ones)}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "60000 numbers sum to 1.00, 70000 to 0.00, log-probability -inf, mean 1.0, nanmean nan" ]
