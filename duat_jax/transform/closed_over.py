"""Flax modules that a function closes over, restored where tracing it fails."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any


@contextmanager
def modules_restored(fn: Callable) -> Iterator[None]:
    """Give the modules that a function closes over their attributes back where the work in this context fails."""
    # A trace that fails inside of `nnx.jit` leaves them without any.
    attributes = list(_attributes(_closed_over(fn)))
    try:
        yield
    except Exception:
        for module, kept in attributes:
            vars(module).clear()
            vars(module).update(kept)
        raise


def _attributes(values: Iterable[Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield modules and their attributes, also of the modules inside of them."""
    nnx: Any = sys.modules.get("flax.nnx")  # where nobody imported it, there is no module
    waiting, seen = list(values) if nnx is not None else [], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, nnx.Pytree) and id(value) not in seen:
            seen.add(id(value))
            yield value, dict(vars(value))
            waiting += vars(value).values()


def _closed_over(fn: Callable) -> list[Any]:
    """Return the values that a function, a method or a partial application of one refers to."""
    values: list[Any] = []
    while isinstance(fn, partial):
        values += [*fn.args, *fn.keywords.values()]
        fn = fn.func
    fn = inspect.unwrap(fn)
    values += [getattr(fn, "__self__", None), *(getattr(fn, "__defaults__", None) or ())]
    with suppress(TypeError, ValueError):  # no function of Python
        variables = inspect.getclosurevars(fn)
        values += [*variables.nonlocals.values(), *variables.globals.values()]
    return values
