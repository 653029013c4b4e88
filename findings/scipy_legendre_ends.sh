#!/usr/bin/env bash
# Expected: Gauss-Legendre nodes to machine precision integrate every power up to degree 2 m - 1 to about it.
# Seen with SciPy 1.17.1 and NumPy 2.4.6: the highest even powers are off by 1e-13 and more, since nodes near -1 and 1 are
#   right relative to 1 and not to their distance from the end; of m = 512 nodes the power 1,022 by more than 1e-11.
# Output seen: 64 nodes off by more than 1e-13: True, 512 nodes by more than 1e-11: True
# Why it matters: a product of n factors is a polynomial of this degree; with such nodes its sum is off by far more than
#   the factors' own rounding.
# Source: scipy.special.roots_legendre (scipy/special/_orthogonal.py), numpy.polynomial.legendre.leggauss.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check scipy==1.17.1 numpy==2.4.6
seen=$("$folder/venv/bin/python" - <<'PYTHON'
from scipy.special import roots_legendre


def off(m):
    nodes, weights = roots_legendre(m)
    degree = 2 * m - 2
    return abs((weights * nodes**degree).sum() * (degree + 1) / 2 - 1)


print(f"64 nodes off by more than 1e-13: {off(64) > 1e-13}, 512 nodes by more than 1e-11: {off(512) > 1e-11}")
PYTHON
)
echo "$seen"
[ "$seen" = "64 nodes off by more than 1e-13: True, 512 nodes by more than 1e-11: True" ]
