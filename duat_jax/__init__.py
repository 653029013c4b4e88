"""Exactly what a Transformer computes: the closed form of a residual stack as a JAX transformation.

`import duat_jax as duat`. The functions are listed in `duat_jax/public.py`; `duat.targets`, `duat.operators` and the
other namespaces are modules. Each is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duat_jax import (  # noqa: F401
        baselines,
        circuits,
        edits,
        evaluation,
        in_context,
        lora,
        models,
        nn,
        operators,
        papers,
        plots,
        pruning,
        results,
        schemas,
        survey,
        symbols,
        targets,
        training,
    )
    from duat_jax.public import *  # noqa: F403

NAMESPACES = (
    *("baselines", "circuits", "edits", "evaluation", "in_context", "lora", "models", "nn", "operators", "papers"),
    *("plots", "pruning", "results", "schemas", "survey", "symbols", "targets", "training"),
)


def __dir__() -> list[str]:
    names = vars(import_module("duat_jax.public"))
    return sorted([*NAMESPACES, *(name for name in names if not name.startswith("_"))])


if not TYPE_CHECKING:  # for a type checker it would give any name

    def __getattr__(name: str) -> Any:
        if name in NAMESPACES:
            return import_module(f"duat_jax.{name}")
        if name == "__all__":
            return __dir__()
        public = import_module("duat_jax.public")
        if name.startswith("_"):
            raise AttributeError(f"module 'duat_jax' has no attribute {name!r}")
        if hasattr(public, name):
            return getattr(public, name)
        new_name = import_module("duat_jax.deprecation").new_name(name)
        if new_name in NAMESPACES:
            return import_module(f"duat_jax.{new_name}")
        namespace, _, new_name = new_name.rpartition(".")
        return getattr(import_module(f"duat_jax.{namespace or 'public'}"), new_name)
