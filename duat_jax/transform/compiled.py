"""Compilation of functions of recordings, with a cache of the ones that were used last."""

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

KEPT = 256
"""The number of programs, shapes and settings for which each function is kept compiled."""


def compiled(fn: Callable[Arguments, Result], *, static_argnames: tuple[str, ...] = ()) -> Callable[Arguments, Result]:
    """Compile a function of recordings as `jax.jit` does, with a cache of limited size."""
    # JAX keeps a function's traces as long as the function lives, for every structure of its arguments; the structure
    # of a recording includes its program. So each structure gets a function of its own, and the least recently used
    # ones are dropped.
    signature = inspect.signature(fn)

    @lru_cache(maxsize=KEPT)
    def jitted(tree: Any, static: tuple[tuple[str, Any], ...]) -> Callable[[list[Any]], Result]:
        return jax.jit(lambda leaves: fn(**jax.tree.unflatten(tree, leaves), **dict(static)))  # type: ignore[call-arg]

    @wraps(fn)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        bound = dict(signature.bind(*arguments, **named).arguments)
        static = tuple((name, bound.pop(name)) for name in static_argnames)
        leaves, tree = jax.tree.flatten(bound)
        return jitted(tree, static)(leaves)

    return call
