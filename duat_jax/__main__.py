"""`python -m duat_jax`: the command `duat`."""

from duat_jax.cli import application

if __name__ == "__main__":
    application(prog_name="duat")
