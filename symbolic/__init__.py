"""The closed form derived, proved, printed and audited: a symbolic layer over sympy, without JAX but for its bridge."""
