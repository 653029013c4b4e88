#!/usr/bin/env bash
# Expected: lax.clamp, whose bounds may be single numbers, has derivatives in bounds that depend on the input.
# Seen with JAX 0.10.2: with one bound of the input's own, such as x.min(), jvp and grad raise a TypeError about the
#   shapes of a select; bounds of the operand's shape, with the same values, have a derivative.
# Output seen: value 8.25, single bounds TypeError, bounds of the operand's shape 2.5 3.0 1.0
# Why it matters: dynamic ranges, as in quantisation by the smallest and the largest entry, run and can't be trained.
# Source: jax/_src/lax/lax.py (clamp_p's JVP selects among operands of two shapes).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
from jax import lax


def clipped(x, bound):
    return lax.clamp(bound(2.5 * x.min()), 3 * x - 1, bound(x.max() + 1)).sum()


def gradient(bound):
    try:
        return " ".join(map(str, jax.grad(clipped)(x, bound).tolist()))
    except TypeError as error:
        return type(error).__name__


x = jnp.array([1.0, 1.25, 2.0])
single, wide = gradient(lambda b: b), gradient(lambda b: jnp.full(3, b))
print(f"value {clipped(x, lambda b: b)}, single bounds {single}, bounds of the operand's shape {wide}")
PYTHON
)
echo "$seen"
[ "$seen" = "value 8.25, single bounds TypeError, bounds of the operand's shape 2.5 3.0 1.0" ]
