"""Compilation of functions of recordings, with a cache of the ones that were used last."""

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

KEPT = 256
"""For how many programs, shapes and settings each function is kept compiled."""


def compiled(fn: Callable[Arguments, Result], *, static_argnames: tuple[str, ...] = ()) -> Callable[Arguments, Result]:
    """Compile a function of recordings as `jax.jit` does, and forget the programs that weren't used for longest.

    JAX keeps what it traced of a function as long as that lives, for every structure of its arguments; the structure
    of a recording has its program.  So each gets a function of its own.

    Args:
        fn: the function.
        static_argnames: the arguments that are no arrays.
    """
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
