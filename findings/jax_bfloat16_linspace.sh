#!/usr/bin/env bash
# Expected: linspace in bfloat16 has the numbers of one in float32, rounded.
# Seen with JAX 0.10.2: two thirds of linspace(-4, 4, 1001) are others, by up to .03125; the second after the middle is
#   twice its value. With 0.12.0.1 that is .015625, and two thirds are others still.
# Output seen: 68% others, by up to 0.03125; entry 502 is 0.03125, not 0.0159912109375
# Why it matters: grids of positions or of integration in half precision are wrong by steps, not by roundings.
# Source: jax/_src/numpy/array_creation.py, linspace.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax.numpy as jnp

found = jnp.linspace(-4, 4, 1001, dtype=jnp.bfloat16).astype(jnp.float32)
rounded = jnp.linspace(-4, 4, 1001).astype(jnp.bfloat16).astype(jnp.float32)
others = 100 * float((found != rounded).mean())
print(f"{others:.0f}% others, by up to {abs(found - rounded).max()}; entry 502 is {found[502]}, not {rounded[502]}")
PYTHON
)
echo "$seen"
[ "$seen" = "68% others, by up to 0.03125; entry 502 is 0.03125, not 0.0159912109375" ]
