#!/usr/bin/env bash
# Expected: what `memory_analysis()` says of a compiled program's temporaries is about what running it takes.
# Seen with JAX 0.12.0.1 on a CPU: the largest sine of a product of 6000 x 6000 matrices has temporaries of 0 bytes by
#   the analysis, and running it takes the product's 144 MB: a library that multiplies has them, of which the compiler
#   knows nothing. With JAX 0.10.2 the analysis says 144 MB.
# Output seen: 0.10.2: temporaries 144 MB, taken more than 100 MB; 0.12.0.1: temporaries 0 MB, taken more than 100 MB
# Why it matters: whoever plans by the analysis whether a program fits is told too little since.
# Source: the compiler for CPUs in jaxlib 0.12, which hands whole groups of operations to the library.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/product.py" <<'PYTHON'
import resource

import jax
import jax.numpy as jnp


def held():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


matrix = jax.block_until_ready(jnp.ones((6000, 6000)))
compiled = jax.jit(lambda a, b: jnp.sin(a @ b).max()).lower(matrix, matrix).compile()
said, before = compiled.memory_analysis().temp_size_in_bytes / 1e6, held()
jax.block_until_ready(compiled(matrix, matrix))
taken = held() - before
print(f"{jax.__version__}: temporaries {said:.0f} MB, taken {'more' if taken > 100 else 'less'} than 100 MB")
PYTHON
seen=()
for version in 0.10.2 0.12.0.1; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check "jax==$version" "jaxlib==${version%.1}" numpy==2.4.6
  seen+=("$(JAX_PLATFORMS=cpu "$folder/$version/bin/python" "$folder/product.py" 2> /dev/null)")
done
echo "${seen[0]}; ${seen[1]}"
[ "${seen[0]}; ${seen[1]}" = "0.10.2: temporaries 144 MB, taken more than 100 MB; 0.12.0.1: temporaries 0 MB, taken more than 100 MB" ]
