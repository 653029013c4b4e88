#!/usr/bin/env bash
# Expected: a compiled function whose first call raised an error while it was traced, and whose second call succeeds,
#   is then called as fast as any other.
# Seen with JAX 0.10.2 and 0.12.0: its calls with these shapes go through Python for good. One call of a hundred arrays
#   makes some thousand Python calls and takes about thirty times as long (520 microseconds instead of 18). Its cache has one entry in either case. Another shape, which didn't raise, is fast. Only a new `jax.jit`
#   or `clear_cache()` helps. Lowering first, `jitted.lower(…)`, leaves no trace of the error.
# Output seen: Python calls: never raised 0, raised once more than 100, lowered when it raised 0; entries 1, 1, 1
# Why it matters: a service that refuses a first request within a traced function (a missing setting, a check of
#   weights), or a notebook in which a cell is mended by a global, stays slow, and nothing says so.
# Source: the dispatch of jax.jit in jaxlib (PjitFunction), which marks an entry whose first call failed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import cProfile
import pstats
from contextlib import suppress

import jax
import jax.numpy as jnp

arrays = [jnp.ones(3) for _ in range(100)]


def calls(first):
    """Python calls of a dispatch, after a first call, and the entries of the function's cache."""
    ready = [first is None]

    @jax.jit
    def fn(arrays):
        if not ready[0]:
            raise ValueError("not ready")
        return arrays[0] + 1

    if first is not None:
        with suppress(ValueError):
            first(fn)
    ready[0] = True
    fn(arrays), fn(arrays)
    profile = cProfile.Profile()
    profile.runcall(fn, arrays)
    # The profiler's own end is counted.
    counted = sum(row[0] for name, row in pstats.Stats(profile).stats.items() if name[0] != "~")
    return "more than 100" if counted > 100 else str(counted), str(fn._cache_size())


never, raised, lowered = calls(None), calls(lambda fn: fn(arrays)), calls(lambda fn: fn.lower(arrays))
print(f"Python calls: never raised {never[0]}, raised once {raised[0]}, lowered when it raised {lowered[0]};"
      f" entries {never[1]}, {raised[1]}, {lowered[1]}")
PYTHON
)
echo "$seen"
[ "$seen" = "Python calls: never raised 0, raised once more than 100, lowered when it raised 0; entries 1, 1, 1" ]
