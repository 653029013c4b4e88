"""The precision of matrix products."""

import jax

PRECISION = jax.lax.Precision.HIGHEST
"""Exactness requires that accelerators don't round float32 products to fewer bits."""
