#!/usr/bin/env bash
# Expected: a loss through lax.ragged_dot that jax.grad differentiates once can be differentiated twice, in either way.
# Seen with JAX 0.10.2: forward over reverse gives the second derivative; reverse over reverse raises
#   NotImplementedError, since the first gradient is a ragged product that contracts over its groups, and JAX has no
#   transpose for that.
# Output seen: forward over reverse 428.0, reverse over reverse NotImplementedError
# Why it matters: gradient penalties and meta-learning of mixtures of experts, whose experts are such products, fail.
# Source: jax/_src/lax/lax.py (_ragged_dot_general_transpose_rule).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
from jax import lax

tokens, experts, sizes = jnp.arange(6.0).reshape(3, 2), jnp.ones((2, 2, 2)), jnp.array([1, 2])


def loss(experts):
    return (lax.ragged_dot(tokens, experts, sizes) ** 2).sum()


first = jax.grad(loss)
forward = jax.jvp(first, (experts,), (experts,))[1].sum()
try:
    reverse = jax.grad(lambda experts: jnp.vdot(first(experts), jnp.ones_like(experts)))(experts).sum()
except NotImplementedError as error:
    reverse = type(error).__name__
print(f"forward over reverse {forward}, reverse over reverse {reverse}")
PYTHON
)
echo "$seen"
[ "$seen" = "forward over reverse 428.0, reverse over reverse NotImplementedError" ]
