#!/usr/bin/env bash
# Expected: jit changes a reverse-mode Jacobian by rounding alone; it is the forward-mode one.
# Seen with JAX 0.10.2 on x86-64 CPUs: of the first feature of a layer norm, by the row, the compiled jacrev is far from
#   jacfwd from about 64 rows on, silently; with 32 rows, without jit, and in forward mode it is right.
# Output seen: 32 rows right, 64 rows far by 0.3 or more; without jit and by jacfwd right
# Why it matters: Jacobians of a text's tokens pass such a norm, and nothing tells that the matrix is another one.
# Source: jaxlib 0.10.2, XLA's compiler for CPUs; the same jaxpr without jit, operation by operation, is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp


def first_feature(x):
    centred = x - x.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5))[:, 0]


def far(jacobian, rows):
    x = jax.random.normal(jax.random.key(0), (rows, 32))
    return float(jnp.abs(jacobian(x) - jax.jacfwd(first_feature)(x)).max())


compiled = jax.jit(jax.jacrev(first_feature))
others = jax.jacrev(first_feature), jax.jit(jax.jacfwd(first_feature))
print(f"32 rows {'right' if far(compiled, 32) < 1e-5 else 'far'}", end=", ")
print(f"64 rows {'far by 0.3 or more' if far(compiled, 64) > 0.3 else 'right'}", end="; ")
print(f"without jit and by jacfwd {'right' if all(far(other, 64) < 1e-5 for other in others) else 'far'}")
PYTHON
)
echo "$seen"
[ "$seen" = "32 rows right, 64 rows far by 0.3 or more; without jit and by jacfwd right" ]
