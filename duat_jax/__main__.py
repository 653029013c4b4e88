"""`python -m duat_jax`: the command `duat`."""

from duat_jax.cli import main

if __name__ == "__main__":
    main()
