"""Exactly what a Transformer computes: the closed form of a residual stack as a JAX transformation.

`import duat_jax as duat`; everything public is listed in `duat_jax/public.py` and loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duat_jax.public import *  # noqa: F403


def __dir__() -> list[str]:
    return sorted(name for name in vars(import_module("duat_jax.public")) if not name.startswith("_"))


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    public = import_module("duat_jax.public")
    # A dunder or a room that isn't imported yet is no public name.
    if name.startswith("_") or not hasattr(public, name):
        raise AttributeError(f"module 'duat_jax' has no attribute {name!r}")
    return getattr(public, name)
