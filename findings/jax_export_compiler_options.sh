#!/usr/bin/env bash
# Expected: `jax.export` of a function compiled with `compiler_options` keeps them with the program, or refuses them, as
#   a compiled function within another one is refused for having some.
# Seen with JAX 0.10.2: they are left out without a word, also where the exported program isn't written to disk. Here
#   an option that orders the computation by its memory (xla_cpu_scheduler_type) brings temporaries from 50 MB to 1 MB;
#   the exported program takes 50 MB again, unless the options are given again to what calls it.
# Output seen: temporaries plain 50 MB, with the option 1 MB, exported 50 MB, exported and compiled with it again 1 MB
# Why it matters: a program that is kept on disk or sent to a server needs other memory, or rounds otherwise, than the
#   one that was tested.
# Source: jax/_src/export/_export.py, which lowers the function and keeps its module alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
from jax import export

array = jax.ShapeDtypeStruct((500, 500), jnp.float32)
given = (array, [array] * 50)
options = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def total(matrix, others):
    return sum(jnp.sin(matrix @ other).max() for other in others)


def temporaries(jitted):
    memory = jitted.lower(*given).compile().memory_analysis()
    return f"{memory.temp_size_in_bytes / 1e6:.0f} MB"


ordered = jax.jit(total, compiler_options=options)
exported = export.export(ordered)(*given)
print(f"temporaries plain {temporaries(jax.jit(total))}, with the option {temporaries(ordered)},"
      f" exported {temporaries(jax.jit(exported.call))},"
      f" exported and compiled with it again {temporaries(jax.jit(exported.call, compiler_options=options))}")
PYTHON
)
echo "$seen"
[ "$seen" = "temporaries plain 50 MB, with the option 1 MB, exported 50 MB, exported and compiled with it again 1 MB" ]
