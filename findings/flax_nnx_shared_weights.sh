#!/usr/bin/env bash
# Expected: NNX modules are pytrees, which `jax.grad` and `jax.tree.map` take as they are; a weight that two layers
#   share, such as a read-out that is the embedding, has one gradient and stays one weight.
# Seen with Flax 0.12.8 and JAX 0.10.2: `jax.grad` gives a gradient for each place, each of which is only that place's
#   part, and one step of descent by `jax.tree.map` leaves two different weights. Nothing warns. `nnx.grad` and
#   `nnx.Optimizer` give one gradient, the sum of both parts, and one weight. Also `jax.jit` returns two of a module
#   that it was given with one.
# Output seen: jax.grad: parts 3.0, 5.0, shared after a step False; jax.jit: shared False; nnx.grad: 8.0, shared after a step True
# Why it matters: a model with tied weights is trained as another one, and saved with both; the loss goes down.
# Source: flax/nnx/pytreelib.py, Pytree._pytree__flatten, which lists a variable wherever it stands.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 optax==0.2.8 numpy==2.4.6
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Tied(nnx.Module):
    """Two places of one weight w, with the value 3 w + 5 w."""

    def __init__(self):
        self.first = nnx.Param(jnp.array(2.0))
        self.second = self.first

    def __call__(self):
        return 3 * self.first[...] + 5 * self.second[...]


def value(model):
    return model()


model = Tied()
gradient = jax.grad(value)(model)
stepped = jax.tree.map(lambda weight, slope: weight - 0.1 * slope, model, gradient)
parts = f"parts {float(gradient.first[...])}, {float(gradient.second[...])}"
shared = bool(stepped.first[...] == stepped.second[...])
returned = jax.jit(lambda model: model)(model)
by_jax = f"jax.grad: {parts}, shared after a step {shared}; jax.jit: shared {returned.first is returned.second}"

(whole,) = jax.tree.leaves(nnx.grad(value)(model))
optimiser = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
optimiser.update(model, nnx.grad(value)(model))
print(f"{by_jax}; nnx.grad: {float(whole)}, shared after a step {model.first is model.second}")
PYTHON
)
echo "$seen"
[ "$seen" = "jax.grad: parts 3.0, 5.0, shared after a step False; jax.jit: shared False; nnx.grad: 8.0, shared after a step True" ]
