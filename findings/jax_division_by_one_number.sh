#!/usr/bin/env bash
# Expected: 41 / 41 is 1 in floating point, and the mean of ones is 1, since IEEE's division rounds once.
# Seen with JAX 0.10.2 on x86-64 CPUs: an array that is divided by one number is multiplied by its reciprocal, with jit
#   and without. 41 / 41 is 0.99999994 and its floor 0; so for 40 of the whole numbers below 300, the first in float64
#   being 49. A single number by another, and an array by an array, are divided.
# Output seen: array by number 0.99999994 floor 0, array by array 1 floor 1, mean of 41 ones 0.99999994, floor_divide 1
# Why it matters: floor(x / width) puts whole multiples into the bin below, and a mean of equal numbers isn't that number.
# Source: jaxlib 0.10.2, XLA's simplification of a division by a broadcast number, which jax.numpy.divide and mean reach.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp


def shown(x):
    return f"{float(x[0]):.8g} floor {float(jnp.floor(x)[0]):.0f}"


x = jnp.array([41.0, 82.0, 123.0])
by_number = jax.jit(lambda x: x / 41.0)(x)
assert (by_number == x / 41.0).all()
mean, whole = float(jnp.mean(jnp.ones(41))), float(jnp.floor_divide(x, 41.0)[0])
by_array = f"array by array {shown(x / jnp.full(3, 41.0))}"
print(f"array by number {shown(by_number)}, {by_array}, mean of 41 ones {mean:.8g}, floor_divide {whole:.0f}")
PYTHON
)
echo "$seen"
[ "$seen" = "array by number 0.99999994 floor 0, array by array 1 floor 1, mean of 41 ones 0.99999994, floor_divide 1" ]
