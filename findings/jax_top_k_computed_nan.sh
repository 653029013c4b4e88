#!/usr/bin/env bash
# Expected: lax.top_k has NaN among its largest entries, as sort, argsort and argmax place it, or nowhere; -0 and 0 are
#   equal, so that the lower index comes first, as its documentation says of equal entries.
# Seen with JAX 0.10.2 on x86-64 CPUs: it compares bits. The constant nan comes first; the NaN that infinity minus infinity,
#   0 / 0 or log(-1) leaves there has its sign set, and comes last. -0 comes after 0.
# Output seen: constant [nan, 2.0], computed [2.0, 1.0], argmax 0 0, of -0 and 0 top_k 1 argmax 0
# Why it matters: the most probable tokens of logits that went wrong look as if nothing had.
# Source: jax/_src/lax/lax.py, top_k, and what XLA compiles it into; jax.lax.sort makes one NaN and one zero of all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax.numpy as jnp
from jax import lax

constant = jnp.array([jnp.nan, 1.0, 2.0])
computed = jnp.array([jnp.inf, 1.0, 2.0]) - jnp.array([jnp.inf, 0.0, 0.0])
zeros = jnp.array([-0.0, 0.0])
top = [lax.top_k(x, 2)[0].tolist() for x in (constant, computed)]
largest = f"argmax {jnp.argmax(constant)} {jnp.argmax(computed)}"
equal = f"of -0 and 0 top_k {lax.top_k(zeros, 1)[1][0]} argmax {jnp.argmax(zeros)}"
print(f"constant {top[0]}, computed {top[1]}, {largest}, {equal}")
PYTHON
)
echo "$seen"
[ "$seen" = "constant [nan, 2.0], computed [2.0, 1.0], argmax 0 0, of -0 and 0 top_k 1 argmax 0" ]
