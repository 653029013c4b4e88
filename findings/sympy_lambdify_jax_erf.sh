#!/usr/bin/env bash
# Expected: lambdify(x, erf(x), "jax") gives a function of jax.scipy.special.erf, or says that it has none.
# Seen with SymPy 1.14.0 and JAX 0.10.2: the function calls Python's own math.erf (math.gamma and math.lgamma too). It
#   works for a number, and raises under jit and grad; Bessel functions are names that nothing defines.
# Output seen: erf: module math, plain 0.5205, jit ConcretizationTypeError, grad ConcretizationTypeError; besselj:
#   NameError
# Why it matters: an activation such as the exact GELU, written in SymPy, seems to work until it is traced.
# Source: sympy/utilities/lambdify.py (the fallback on the math module), sympy/printing/numpy.py, JaxPrinter.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 sympy==1.14.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import jax
from sympy import besselj, erf, lambdify
from sympy.abc import x


def tried(call):
    try:
        return f"{float(call(0.5)):.4f}"
    except Exception as error:
        return type(error).__name__


f = lambdify(x, erf(x), "jax")
module = f.__globals__["erf"].__module__
print(
    f"erf: module {module}, plain {tried(f)}, jit {tried(jax.jit(f))}, grad {tried(jax.grad(f))};"
    f" besselj: {tried(lambdify(x, besselj(0, x), 'jax'))}"
)
PYTHON
)
echo "$seen"
[ "$seen" = "erf: module math, plain 0.5205, jit ConcretizationTypeError, grad ConcretizationTypeError; besselj: NameError" ]
