"""The dtypes that parameters may have."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from duat_jax.errors import DuatError
from duat_jax.models.checkpoint.problems import quoted

DTYPES = ("float64", "float32", "bfloat16", "float16")


def valid_dtype(dtype: DTypeLike, names: Sequence[str] = DTYPES) -> jnp.dtype:
    """Return a dtype of parameters."""
    try:
        valid = jnp.dtype(dtype)
    except TypeError:
        valid = None
    if valid is None or valid.name not in names:
        raise DuatError(
            f"dtype must be {', '.join(names[:-1])} or {names[-1]}, not {quoted(valid.name if valid else dtype)}"
        )
    if valid == jnp.float64 and not jax.config.read("jax_enable_x64"):
        raise DuatError('float64 is off in JAX: call jax.config.update("jax_enable_x64", True) first')
    return valid
