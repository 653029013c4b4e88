#!/usr/bin/env bash
# Expected: a compiled program can be serialized and loaded again, however the process came by it: compiled just now, or
#   read from JAX's own cache of compiled programs.
# Seen with JAX 0.10.2 on x86-64 CPUs: of one that the cache had, serializing and loading go through without a word, and
#   the first call fails, because a function of the program isn't in what was written.
# Output seen: compiled: runs; from the cache: NOT_FOUND
# Why it matters: whoever ships serialized programs makes good ones in the first run, and useless ones in every later run
#   on the same machine, where the cache is filled; nothing is said until they are called elsewhere.
# Source: jax/experimental/serialize_executable.py of JAX 0.10.2; xla/pjrt/cpu/cpu_client.cc of jaxlib 0.10.2.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/serialized.py" <<'PYTHON'
import jax
import jax.numpy as jnp
from jax.experimental.serialize_executable import deserialize_and_load, serialize

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
compiled = jax.jit(lambda x: jnp.tanh(x)[jnp.arange(8) % 3] * x).lower(jnp.ones(8)).compile()
loaded = deserialize_and_load(*serialize(compiled))
try:
    loaded(jnp.ones(8)).block_until_ready()
    print("runs")
except Exception as error:
    print(str(error).partition(":")[0])
PYTHON
run() { JAX_PLATFORMS=cpu JAX_COMPILATION_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/serialized.py" 2> /dev/null; }
seen="compiled: $(run); from the cache: $(run)"
echo "$seen"
[ "$seen" = "compiled: runs; from the cache: NOT_FOUND" ]
