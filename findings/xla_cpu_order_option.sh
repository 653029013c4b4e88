#!/usr/bin/env bash
# Expected: `jax.jit(compiler_options={flag: value})` does for one function what XLA_FLAGS=--flag=value does for all.
# Seen with JAX 0.10.2 on a CPU: `xla_cpu_enable_concurrency_optimized_scheduler` is known there and its value is
#   checked, but False changes nothing: fifty products, each of which is reduced to one number, are all computed before
#   the first is reduced. In XLA_FLAGS it brings the memory of temporaries from 50 MB to 1 MB, and so does another
#   option of one function, xla_cpu_scheduler_type.
# Output seen: temporaries 50 MB, with the option 50 MB, with the flag 1 MB, with the type 1 MB
# Why it matters: a program's memory is set for it alone only by an option that one has to find in the compiler.
# Source: the compiler for CPUs in jaxlib.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/temporaries.py" <<'PYTHON'
import sys

import jax
import jax.numpy as jnp

array = jax.ShapeDtypeStruct((500, 500), jnp.float32)
options = {
    "none": None,
    "option": {"xla_cpu_enable_concurrency_optimized_scheduler": False},
    "type": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
}[sys.argv[1]]


def total(matrix, others):
    return sum(jnp.sin(matrix @ other).max() for other in others)


compiled = jax.jit(total, compiler_options=options).lower(array, [array] * 50).compile()
print(f"{compiled.memory_analysis().temp_size_in_bytes / 1e6:.0f} MB")
PYTHON
temporaries() { JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/temporaries.py" "$1" 2> /dev/null; }
flag=$(XLA_FLAGS=--xla_cpu_enable_concurrency_optimized_scheduler=false temporaries none)
seen="temporaries $(temporaries none), with the option $(temporaries option), with the flag $flag, with the type $(temporaries type)"
echo "$seen"
[ "$seen" = "temporaries 50 MB, with the option 50 MB, with the flag 1 MB, with the type 1 MB" ]
