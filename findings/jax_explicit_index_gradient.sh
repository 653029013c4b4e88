#!/usr/bin/env bash
# Expected: where x[1] has a value, x[1].sum() has a gradient, however the entries of x lie on devices.
# Seen with JAX 0.10.2: on a mesh with an explicit axis, of one device, that divides the indexed axis, the value is there
#   and the gradient raises a ValueError about the cotangent's type; the same entries as x[1:2] have one, and so has x[1]
#   where the mesh's axis is automatic.  With JAX 0.12.0.1 x[1] has a gradient here.
# Output seen: value 22.0, x[1] ValueError, x[1:2] 4.0, x[1] with an automatic axis 4.0
# Why it matters: code that runs forward on such a mesh, tried on one device first, can't be trained or explained.
# Source: jax/_src/lax/lax.py (the transpose of squeeze, by which x[1] drops its axis, gives that axis back undivided).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def divided(kind):
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(kind,))
    return jax.device_put(jnp.arange(8.0).reshape(2, 4), NamedSharding(mesh, PartitionSpec("rows")))


def gradient(function, x):
    try:
        return jax.grad(function)(x).sum()
    except ValueError as error:
        return type(error).__name__


x = divided(AxisType.Explicit)
row, rows = (lambda x: x[1].sum()), (lambda x: x[1:2].sum())
automatic = gradient(row, divided(AxisType.Auto))
print(f"value {row(x)}, x[1] {gradient(row, x)}, x[1:2] {gradient(rows, x)}, x[1] with an automatic axis {automatic}")
PYTHON
)
echo "$seen"
[ "$seen" = "value 22.0, x[1] ValueError, x[1:2] 4.0, x[1] with an automatic axis 4.0" ]
