"""Reference implementations by dense matrices, independent of `duat_jax.transform`."""
