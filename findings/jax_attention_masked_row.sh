#!/usr/bin/env bash
# Expected: what jax.nn.dot_product_attention gives a query that may read no key is one thing, zeros, in whatever way
#   that is said.
# Seen with JAX 0.10.2 and 0.12.0.1: said by mask or by key_value_seq_lengths, the query reads the mean of all values,
#   those of padding included; said by a bias of minus infinity it is NaN; only query_seq_lengths gives zeros.
# Output seen: mask 1.0, key lengths 1.0, bias nan, query lengths 0.0
# Why it matters: a padded row of a batch carries the mean of other tokens into every later sum over tokens, and two
#   implementations of one model differ there though every real token agrees.
# Source: jax/_src/nn/functions.py, _apply_masks and _dot_product_attention_core.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import jax.numpy as jnp
from jax.nn import dot_product_attention

queries, keys = jnp.ones((1, 1, 1, 4)), jnp.ones((1, 3, 1, 4))
values = jnp.arange(3.0)[None, :, None, None] * keys
nothing = jnp.zeros((1, 1, 1, 3), bool)
said = {
    "mask": {"mask": nothing},
    "key lengths": {"key_value_seq_lengths": jnp.array([0])},
    "bias": {"bias": jnp.where(nothing, 0, -jnp.inf)},
    "query lengths": {"query_seq_lengths": jnp.array([0])},
}
read = {name: float(dot_product_attention(queries, keys, values, **how)[0, 0, 0, 0]) for name, how in said.items()}
print(", ".join(f"{name} {value}" for name, value in read.items()))
PYTHON
)
echo "$seen"
[ "$seen" = "mask 1.0, key lengths 1.0, bias nan, query lengths 0.0" ]
