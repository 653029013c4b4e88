"""The independent routes to the same numbers, as dense matrices; nothing here imports `duat_jax.transform`."""
