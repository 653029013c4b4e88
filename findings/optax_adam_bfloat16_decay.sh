#!/usr/bin/env bash
# Expected: Adam beside bfloat16 parameters forgets old gradients at its rate, b2 = .999, to the three digits of the dtype.
# Seen with Optax 0.2.8 and JAX 0.10.2: the second moment has the dtype of the parameters, in which .999 is 1. It forgets
#   nothing, and grows until a thousandth of a square is below its rounding. After 3,000 gradients of 1 and 3,000 of .01
#   it is .5, and .047 in float32; optax.ema of decay .999 stands still halfway to ones, too.
# Output seen: second moment float32 0.047 bfloat16 0.500, ema of ones float32 0.950 bfloat16 0.500
# Why it matters: steps are too large by a third where gradients stay equal, and remain too small where they shrink.
# Source: optax/tree_utils/_tree_math.py, tree_update_moment_per_elem_norm and tree_update_moment.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
import optax


def after(rule, dtype, gradients):
    weights = jnp.zeros(2, dtype)
    update, state = jax.jit(rule.update), rule.init(weights)
    for gradient in gradients:
        step, state = update(jnp.full(2, gradient, dtype), state, weights)
    return float(step[0]), state


moments, means = [], []
for dtype in (jnp.float32, jnp.bfloat16):
    state = after(optax.adam(0.01), dtype, 3000 * [1.0] + 3000 * [0.01])[1]
    moments.append(f"{jnp.dtype(dtype)} {float(state[0].nu[0]):.3f}")
    mean = after(optax.ema(0.999, debias=False), dtype, 3000 * [1.0])[0]
    means.append(f"{jnp.dtype(dtype)} {mean:.3f}")
print(f"second moment {' '.join(moments)}, ema of ones {' '.join(means)}")
PYTHON
)
echo "$seen"
[ "$seen" = "second moment float32 0.047 bfloat16 0.500, ema of ones float32 0.950 bfloat16 0.500" ]
