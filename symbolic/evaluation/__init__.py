"""Evaluation of expressions: in exact numbers, as JAX functions, and compared with a function."""
