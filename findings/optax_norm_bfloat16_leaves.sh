#!/usr/bin/env bash
# Expected: the global norm of a tree of bfloat16 gradients is right to about three digits.
# Seen with Optax 0.2.8: the squares are summed leaf by leaf in the dtype of the leaves, and a sum of 256 in bfloat16
#   no longer grows by 1. A tree of 1,000 leaves with one 1 each has the norm 16; one leaf with the same numbers 31.6.
# Output seen: in one leaf 31.62, in 1000 leaves 16.00, clipped to a norm of 1: 1.98
# Why it matters: clipping by the global norm clips a deep model less than asked, by a factor that depends on how many
#   leaves it has and not on its gradients; stacking its layers changes the training.
# Source: optax/tree_utils/_tree_math.py, tree_norm; optax/transforms/_clipping.py, clip_by_global_norm.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 optax==0.2.8
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import jax.numpy as jnp
import numpy as np
import optax

leaves = [jnp.ones((), jnp.bfloat16)] * 1000
clip = optax.clip_by_global_norm(1.0)
clipped, _ = clip.update(leaves, clip.init(leaves))
norm = np.linalg.norm(np.array(clipped, np.float64))
together = optax.global_norm([jnp.ones(1000, jnp.bfloat16)])
print(
    f"in one leaf {float(together):.2f}, in 1000 leaves {float(optax.global_norm(leaves)):.2f},"
    f" clipped to a norm of 1: {norm:.2f}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "in one leaf 31.62, in 1000 leaves 16.00, clipped to a norm of 1: 1.98" ]
