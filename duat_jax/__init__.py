"""Exactly what a Transformer computes: the closed form of a residual stack as a JAX transformation.

`import duat_jax as duat`; everything public is listed in `__all__` and loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duat_jax.closed_form import ClosedForm, unroll
    from duat_jax.collapsed import Collapse, collapse
    from duat_jax.contributions import Closure, Decomposition, decompose
    from duat_jax.errors import BadCheckpoint, BadText, DuatError, NotAffine, UnsupportedProgram
    from duat_jax.explanation import Explanation, explain
    from duat_jax.linear_map import LinearMap
    from duat_jax.marks import hold, offset, stream, term
    from duat_jax.models.loader import load, load_config, load_tokenizer
    from duat_jax.models.transformer import Config, Transformer
    from duat_jax.record_replay import Dynamics, record, replay

_HOME = {
    "closed_form": ("ClosedForm", "unroll"),
    "collapsed": ("Collapse", "collapse"),
    "contributions": ("Closure", "Decomposition", "decompose"),
    "errors": ("BadCheckpoint", "BadText", "DuatError", "NotAffine", "UnsupportedProgram"),
    "explanation": ("Explanation", "explain"),
    "linear_map": ("LinearMap",),
    "marks": ("hold", "offset", "stream", "term"),
    "models.loader": ("load", "load_config", "load_tokenizer"),
    "models.transformer": ("Config", "Transformer"),
    "record_replay": ("Dynamics", "record", "replay"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "BadCheckpoint",
    "BadText",
    "ClosedForm",
    "Closure",
    "Collapse",
    "Config",
    "Decomposition",
    "DuatError",
    "Dynamics",
    "Explanation",
    "LinearMap",
    "NotAffine",
    "Transformer",
    "UnsupportedProgram",
    "collapse",
    "decompose",
    "explain",
    "hold",
    "load",
    "load_config",
    "load_tokenizer",
    "offset",
    "record",
    "replay",
    "stream",
    "term",
    "unroll",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'duat_jax' has no attribute {name!r}")
    return getattr(import_module(f"duat_jax.{_MODULE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
