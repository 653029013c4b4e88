"""What is compiled for questions to programs: the questions that were asked last."""

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

KEPT = 256
"""Of every question, for how many programs, shapes and settings what was compiled is kept."""


def compiled(fn: Callable[Arguments, Result], *, static_argnames: tuple[str, ...] = ()) -> Callable[Arguments, Result]:
    """Compile a function of recordings as `jax.jit` does, and forget the program that wasn't asked for longest.

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
