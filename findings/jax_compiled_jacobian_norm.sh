#!/usr/bin/env bash
# Expected: jit changes gradients of several read-outs of one input by rounding alone.
# Seen with JAX 0.10.2 on x86-64 CPUs: the compiled jacrev of the first feature of a layer norm, row by row, is silently
#   far from jacfwd at 64 rows of 32 features; at 32 rows, without jit, in forward mode, and without the fusions for
#   YNNPACK, which this version has by default, it is right. vmap of grad does as jacrev does. JAX 0.9.2, 0.10.0 and
#   0.10.1 are right, and so is 0.10.2 in bfloat16 and float16.
# Output seen: 32 rows right, 64 rows far by 0.3 or more; without jit right, jacfwd right, without YNNPACK right
# Why it matters: several read-outs of one text pass its norms, and nothing tells that the gradients are others.
# Source: jaxlib 0.10.2; the compiled program has one ynn_fusion of the norm's backward pass (a product with an array
#   that all read-outs share, its sum, and both products after it).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/jacobian.py" <<'PYTHON'
import sys

import jax
import jax.numpy as jnp


def first_feature(x):
    centred = x - x.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5))[:, 0]


def seen(jacobian, rows):
    x = jax.random.normal(jax.random.key(0), (rows, 32))
    off = jnp.abs(jacobian(x) - forward(x)).max()
    return "right" if off < 1e-5 else "far by 0.3 or more" if off > 0.3 else "far"


reverse, forward = jax.jacrev(first_feature), jax.jacfwd(first_feature)

if sys.argv[1:]:
    print(f"without YNNPACK {seen(jax.jit(reverse), 64)}")
else:
    print(f"32 rows {seen(jax.jit(reverse), 32)}, 64 rows {seen(jax.jit(reverse), 64)};", end=" ")
    print(f"without jit {seen(reverse, 64)}, jacfwd {seen(jax.jit(forward), 64)}", end=", ")
PYTHON
export JAX_PLATFORMS=cpu
seen=$("$folder/venv/bin/python" "$folder/jacobian.py" 2> /dev/null)
seen+=$(XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= "$folder/venv/bin/python" "$folder/jacobian.py" without 2> /dev/null)
echo "$seen"
[ "$seen" = "32 rows right, 64 rows far by 0.3 or more; without jit right, jacfwd right, without YNNPACK right" ]
