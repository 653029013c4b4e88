"""The old name of `duat_jax.schemas`, for one release."""

from duat_jax.deprecation import warn
from duat_jax.schemas import *  # noqa: F403

warn("duat_jax.records", "duat_jax.schemas")
