#!/usr/bin/env bash
# Expected: where the reverse derivative of a function is finite, the forward derivative is the same number.
# Seen with JAX 0.10.2: behind masked entries of -inf, grad of lax.cumlogsumexp's last entry is 0 0 1/3 1/3 1/3, and
#   jvp is nan along a direction that moves no masked entry.
# Output seen: grad 0.000 0.000 0.333 0.333 0.333, jvp nan
# Why it matters: Jacobians by jacfwd, linearize and checks of gradients against forward mode are nan where training
#   works.
# Source: jax/_src/lax/control_flow/loops.py (cumlogsumexp), jnp.logaddexp's rule in jax/_src/numpy/ufuncs.py.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
from jax import lax


def last(x):
    return lax.cumlogsumexp(jnp.where(jnp.arange(5) < 2, -jnp.inf, x))[-1]


x = jnp.ones(5)
gradient = " ".join(f"{v:.3f}" for v in jax.grad(last)(x).tolist())
print(f"grad {gradient}, jvp {jax.jvp(last, (x,), (jnp.array([0.0, 0, 1, 1, 1]),))[1]}")
PYTHON
)
echo "$seen"
[ "$seen" = "grad 0.000 0.000 0.333 0.333 0.333, jvp nan" ]
