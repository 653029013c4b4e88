#!/usr/bin/env bash
# Expected: the same program in bfloat16 rounds at the same places on a v5e, a v6e and a 7x.
# Seen with JAX 0.10.2 and libtpu 0.0.42.1: a v5e and a v6e compute a chain of operations in float32 and round once, at
#   the end; on a 7x each operation is in bfloat16, and its result is rounded. `jax.nn.gelu` has nine.
# Output seen: operations of gelu in float32: v5e 9 of 9, v6e 9 of 9, tpu7x 0 of 9
# Why it matters: an activation or a softmax in bfloat16 that is right to one rounding on a v5e or v6e loses digits on a
#   7x by the same versions and the same program: nine roundings by up to a 256th where one was. Ask for float32.
# Source: the compiler in libtpu, by its rule of excess precision (`xla_allow_excess_precision`).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$folder/tpu" libtpu==0.0.42.1
seen=$(JAX_PLATFORMS=cpu PYTHONPATH="$folder/tpu" "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import re

import jax
import jax.numpy as jnp
from jax.experimental.topologies import get_topology_desc
from jax.sharding import SingleDeviceSharding


def found(name):
    chip = SingleDeviceSharding(get_topology_desc(platform="tpu", topology_name=f"{name}:2x2").devices[0])
    x = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16, sharding=chip)
    program = jax.jit(jax.nn.gelu).lower(x).compile().as_text()
    dtypes = re.findall(r"= (\w+)\[[^\]]*\]\S* (?:multiply|add|tanh)\(", program)
    return f"{name} {dtypes.count('f32')} of {len(dtypes)}"


print("operations of gelu in float32:", ", ".join(map(found, ("v5e", "v6e", "tpu7x"))))
PYTHON
)
echo "$seen"
[ "$seen" = "operations of gelu in float32: v5e 9 of 9, v6e 9 of 9, tpu7x 0 of 9" ]
