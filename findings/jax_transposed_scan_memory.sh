#!/usr/bin/env bash
# Expected: the transpose of a scan that is linear in its carry and inputs needs as much memory as what is scanned, since
#   the factor of each step is computed from a slice that is kept anyway.
# Seen with JAX 0.10.2 on x86-64 CPUs: jax.linear_transpose first runs a scan of its own over all steps, which computes
#   the factors and stacks them: of a decay exp(-step * rates) with 16 rates, sixteen times the scanned array and more.
#   With the body in jax.checkpoint(..., prevent_cse=False) the factors are computed again in the backward scan, with
#   the same result, and nothing of that size is kept.
# Output seen: scans of the transpose 2, temporaries above the factors of all steps; in jax.checkpoint 1, below a fifth; equal
# Why it matters: nothing has to be remembered to transpose a state space layer with given gates, and yet its memory grows
#   with tokens times channels times states.
# Source: jax 0.10.2, jax/_src/lax/control_flow/loops.py, _scan_partial_eval: the body is split into what is known,
#   which runs first, and the rest.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat > "$folder/transposed.py" <<'PYTHON'
import jax
import jax.numpy as jnp

TOKENS, CHANNELS, STATES = 256, 64, 16
FACTORS = 4 * TOKENS * CHANNELS * STATES


def scanned(body, steps, inputs):
    return jax.lax.scan(body, jnp.zeros((CHANNELS, STATES)), (steps, inputs))[1]


def body(state, token):
    step, given = token
    state = jnp.exp(-step[:, None] * jnp.arange(1.0, STATES + 1)) * state + given[:, None]
    return state, state.sum(-1)


def transposed(body):
    def pulled_back(steps, readout):
        return jax.linear_transpose(lambda inputs: scanned(body, steps, inputs), readout)(readout)[0]

    return pulled_back


steps, readout = jax.random.uniform(jax.random.key(0), (2, TOKENS, CHANNELS))
results, said = [], []
for each in (body, jax.checkpoint(body, prevent_cse=False)):
    program = jax.jit(transposed(each)).lower(steps, readout).compile()
    kept = program.memory_analysis().temp_size_in_bytes
    scans = sum(equation.primitive.name == "scan" for equation in jax.make_jaxpr(transposed(each))(steps, readout).eqns)
    size = "above the factors of all steps" if kept > FACTORS else "below a fifth" if kept < FACTORS / 5 else "between"
    results.append(program(steps, readout))
    said.append(f"{scans}, temporaries {size}" if not said else f"{scans}, {size}")
same = "equal" if jnp.allclose(*results, rtol=1e-5) else "different"
print(f"scans of the transpose {said[0]}; in jax.checkpoint {said[1]}; {same}")
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/transposed.py" 2> /dev/null)
echo "$seen"
[ "$seen" = "scans of the transpose 2, temporaries above the factors of all steps; in jax.checkpoint 1, below a fifth; equal" ]
