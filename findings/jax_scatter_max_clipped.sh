#!/usr/bin/env bash
# Expected: x.at[i].max(u, mode="clip") moves an index beyond the end to the end, and its derivative does the same.
# Seen with JAX 0.10.2: the value is right, jvp is nan at that place and the gradient of the update is inf; min
#   likewise. add and set have the right derivative, and max has it where the index is inside.
# Output seen: max: value 3 5 4, jvp nan, gradient of the update inf; add: value 4 5 6, jvp 2.3, gradient of the
#   update 1
# Why it matters: one index out of range, as of padding, makes a training's gradients infinite although its loss is
#   right.
# Source: jax/_src/lax/slicing.py, the derivative rule of scatter_max and scatter_min, which looks up the places as
#   they were given.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp

x, u, along = jnp.array([1.0, 5, 2]), jnp.array([3.0, 4]), (jnp.array([0.1, 0.2, 0.3]), jnp.array([1.0, 2]))


def told(kind):
    def f(x, u):
        return getattr(x.at[jnp.array([0, 7])], kind)(u, mode="clip")

    value = " ".join(f"{v:g}" for v in f(x, u).tolist())
    last = float(jax.jvp(f, (x, u), along)[1][-1])
    gradient = float(jax.grad(lambda u: f(x, u)[-1])(u)[-1])
    return f"{kind}: value {value}, jvp {last:.3g}, gradient of the update {gradient:g}"


print("; ".join(map(told, ("max", "add"))))
PYTHON
)
echo "$seen"
[ "$seen" = "max: value 3 5 4, jvp nan, gradient of the update inf; add: value 4 5 6, jvp 2.3, gradient of the update 1" ]
