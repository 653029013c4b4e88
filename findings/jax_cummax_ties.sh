#!/usr/bin/env bash
# Expected: the gradient of a cumulated maximum shares a tie as jnp.max does, in equal parts, or gives it to one
#   entry.
# Seen with JAX 0.10.2: lax.cummax is a tree of pairwise maxima, each of which halves a tie, so the parts of equal
#   numbers depend on their place and on the length; of five equal numbers the last gets a half. Pooling gives all to
#   the first.
# Output seen: max .2 .2 .2 .2 .2, cummax .125 .125 .125 .125 .5, pooling 1 0 0 0 0
# Why it matters: equal tokens get unequal attributions, and another padding changes them.
# Source: jax/_src/lax/control_flow/loops.py (cummax by associative_scan), jax/_src/lax/windowed_reductions.py
#   (select_and_scatter).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
from jax import lax

FUNCTIONS = {
    "max": jnp.max,
    "cummax": lambda x: lax.cummax(x)[-1],
    "pooling": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (5,), (1,), "VALID").sum(),
}


def parts(f):
    return " ".join(f"{v:.3g}".removeprefix("0") or "0" for v in jax.grad(f)(jnp.ones(5)).tolist())


print(", ".join(f"{name} {parts(f)}" for name, f in FUNCTIONS.items()))
PYTHON
)
echo "$seen"
[ "$seen" = "max .2 .2 .2 .2 .2, cummax .125 .125 .125 .125 .5, pooling 1 0 0 0 0" ]
