#!/usr/bin/env bash
# Expected: numbers of a normal distribution between 5.5 and 8 have the mean 5.67, and hardly any is above 7.
# Seen with JAX 0.10.2 and 0.12.0.1: in float32 the error function is 1 at both bounds. Its inverse there is infinite,
#   and is cut to the bound that is farther out: every number is the last one below 8. Between 5 and 8 ten numbers are
#   drawn.
# Output seen: from 4 to 8 mean 4.2, from 5 to 8 mean 5.3 of 10 numbers, from 5.5 to 8 mean 8.0 of 1 number
# Why it matters: rare events that are sampled on purpose, and starting weights that are kept away from 0, all lie where
#   the distribution has the least, without a NaN or a message.
# Source: jax/_src/random/core.py, _truncated_normal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$("$folder/venv/bin/python" 2> /dev/null <<'PYTHON'
import jax
import numpy as np


def drawn(lower):
    return np.asarray(jax.random.truncated_normal(jax.random.key(0), lower, 8.0, (100_000,)))


near, far, farther = map(drawn, (4.0, 5.0, 5.5))
print(
    f"from 4 to 8 mean {near.mean():.1f}, from 5 to 8 mean {far.mean():.1f} of {len(np.unique(far))} numbers,"
    f" from 5.5 to 8 mean {farther.mean():.1f} of {len(np.unique(farther))} number"
)
PYTHON
)
echo "$seen"
[ "$seen" = "from 4 to 8 mean 4.2, from 5 to 8 mean 5.3 of 10 numbers, from 5.5 to 8 mean 8.0 of 1 number" ]
