"""The values of expressions: in exact numbers, and as JAX functions."""
