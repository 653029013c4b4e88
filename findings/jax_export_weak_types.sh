#!/usr/bin/env bash
# Expected: a program that is exported, written and read again gives what it gave before it was written, so that a sum
#   with its result has the same type.
# Seen with JAX 0.10.2: an exported program keeps that a result is weakly typed, and one that was written and read again
#   doesn't. A bfloat16 number plus the result is bfloat16 before, and float32 after.
# Output seen: exported bfloat16, read again float32
# Why it matters: weak types decide how dtypes are promoted. What reads programs from disk computes in a wider type than
#   the process that wrote them, without a message; both results are equal in value and in dtype, as tests compare them.
# Source: jax/_src/export/serialization.py of JAX 0.10.2, which writes shapes and dtypes of results.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 flatbuffers==25.12.19
cat > "$folder/promoted.py" <<'PYTHON'
import jax
import jax.numpy as jnp
from jax import export

exported = export.export(jax.jit(lambda x: jnp.where(x[0] > 0, 1.0, 2.0)))(jnp.ones(1))
read_again = export.deserialize(exported.serialize())
number = jnp.ones((), jnp.bfloat16)
before, after = (number + program.call(jnp.ones(1)) for program in (exported, read_again))
print(f"exported {before.dtype}, read again {after.dtype}")
PYTHON
seen=$("$folder/venv/bin/python" "$folder/promoted.py" 2> /dev/null)
echo "$seen"
[ "$seen" = "exported bfloat16, read again float32" ]
