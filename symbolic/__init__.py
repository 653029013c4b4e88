"""Derive, prove and typeset the closed form of a stack of layers, and of blocks that a user writes, with sympy.

Every public name is in `public.py`, `matrices.py` or `papers.py`, and loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symbolic import matrices, papers  # noqa: F401
    from symbolic.public import *  # noqa: F403

NAMESPACES = ("matrices", "papers")


def __dir__() -> list[str]:
    names = vars(import_module("symbolic.public"))
    return sorted([*NAMESPACES, *(name for name in names if not name.startswith("_"))])


def __getattr__(name: str) -> Any:
    if name in NAMESPACES:
        return import_module(f"symbolic.{name}")
    if name == "__all__":
        return __dir__()
    public = import_module("symbolic.public")
    # A dunder or a room that isn't imported yet is no public name.
    if name.startswith("_") or not hasattr(public, name):
        raise AttributeError(f"module 'symbolic' has no attribute {name!r}")
    return getattr(public, name)
