"""Strict numerics and checked shapes for the whole suite."""

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Every annotation of a shape in the package is checked while the suite runs.
install_import_hook("duat_jax", "beartype.beartype")
