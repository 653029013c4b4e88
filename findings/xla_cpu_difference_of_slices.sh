#!/usr/bin/env bash
# Expected: inside a scan, expm1 of the difference of two rows of one computed array takes about as long as expm1 of one of
#   the rows: a subtraction is cheap beside an exponential.
# Seen with jaxlib 0.10.2 on x86-64 CPUs: it takes about six times as long. XLA fuses the product, both slices and the
#   exponential into one loop, and its fusion emitter for CPUs leaves that loop without vector instructions. With the
#   older emitter, XLA_FLAGS=--xla_cpu_use_fusion_emitters=false, both take the same time.
# Output seen: of the difference more than twice as long as of one row; with the older emitter as long
# Why it matters: the slope of an exponential between two points is such an expression, so that a difference of two runs
#   of a state space model pays several times the price of its exponentials.
# Source: jaxlib 0.10.2, xla/backends/cpu/codegen/emitters; the flag stands in xla/debug_options_flags.cc.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/timed.py" <<'PYTHON'
import statistics
import time

import jax
import jax.numpy as jnp

steps = jax.nn.softplus(jax.random.normal(jax.random.key(0), (100, 2, 1536)) - 2)
rates = jnp.arange(1.0, 17)


def scanned(of_step):
    return jax.jit(lambda steps: jax.lax.scan(lambda count, step: (count + 1, of_step(step)), 0, steps)[1])


def of_the_difference(step):
    rows = step[..., None] * rates
    return jnp.expm1(-jnp.abs(rows[0] - rows[1]))


def of_one_row(step):
    return jnp.expm1(-(step[..., None] * rates)[0])


programs = [scanned(of_the_difference), scanned(of_one_row)]
times = [[], []]
for turn in range(16):
    for program, taken in zip(programs, times):
        began = time.perf_counter()
        program(steps).block_until_ready()
        taken += [time.perf_counter() - began] if turn else []
ratio = statistics.median(times[0]) / statistics.median(times[1])
print("more than twice as long" if ratio > 2 else "as long" if ratio < 1.5 else f"{ratio:.1f} times as long")
PYTHON
run() { JAX_PLATFORMS=cpu XLA_FLAGS=$1 "$folder/venv/bin/python" "$folder/timed.py" 2> /dev/null; }
seen="of the difference $(run "") as of one row; with the older emitter $(run --xla_cpu_use_fusion_emitters=false)"
echo "$seen"
[ "$seen" = "of the difference more than twice as long as of one row; with the older emitter as long" ]
