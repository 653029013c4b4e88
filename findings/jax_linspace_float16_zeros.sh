#!/usr/bin/env bash
# Expected: jnp.linspace(0, 1, n) in float16 has n rounded numbers from 0 to 1, many of them equal where n is large.
# Seen with JAX 0.10.2 and 0.12.0.1: the number of intervals is converted to float16 first. From 65,520 intervals on it
#   is infinite, and all numbers are 0 but the last one, which is set to the end.
# Output seen: the middle of 65001 points 0.500, of 70001 points 0.000, their last 1.000
# Why it matters: an integration path, or the positions of a long text, made in the dtype of a model stands still at its
#   beginning for all but one step.
# Source: jax/_src/numpy/array_creation.py, _linspace.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import jax.numpy as jnp

few, many = (jnp.linspace(0, 1, count, dtype=jnp.float16) for count in (65_001, 70_001))
print(
    f"the middle of 65001 points {few[32_500]:.3f}, of 70001 points {many[35_000]:.3f}, their last {many[-1]:.3f}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "the middle of 65001 points 0.500, of 70001 points 0.000, their last 1.000" ]
