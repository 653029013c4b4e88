"""The check of annotations while the suite runs: shapes by jaxtyping, everything else by beartype alone."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype

_jaxtyped = jaxtyping.jaxtyped
_typed = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
_PLACE = str(Path(jaxtyping.__file__).with_name("checked"))
"""A file that there isn't, of which a traceback shows no lines."""
_axes = _jaxtyped("context")
"""Where lengths of axes are remembered during one call."""


def checked(function: Any) -> Any:
    """Wrap a function so that its arguments and what it returns are checked.

    The wrapper of jaxtyping binds the arguments and checks them twice, before the call and beside what is returned.
    They are checked once here, and axes are remembered only where an annotation has any.  A function inside another is
    made, and would be wrapped, at each call of the other one: it is checked if it has axes; mypy reads its other types.

    Args:
        function: a function, or a class, of which the constructor is wrapped if it is a dataclass.
    """
    if inspect.isclass(function):
        constructor = vars(function).get("__init__")
        if is_dataclass(function) and not hasattr(constructor, "__wrapped__") and constructor:
            function.__init__ = checked(constructor)
        return function
    flags = function.__code__.co_flags if inspect.isfunction(function) else inspect.CO_GENERATOR
    if flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return _jaxtyped(function, typechecker=beartype)
    written = function.__annotations__
    within = "<locals>" in function.__qualname__
    if within and not any(isinstance(of, str) or "jaxtyping" in repr(of) for of in written.values()):
        return function
    function.__annotations__ = {name: _resolved(of, function.__globals__) for name, of in written.items()}
    has_axes = "jaxtyping" in repr(function.__annotations__)
    wrapped = _typed(function)
    function.__annotations__ = wrapped.__annotations__ = written
    if wrapped is not function:
        _hide(wrapped)
    return _with_axes(function, wrapped) if has_axes else wrapped


def _with_axes(function: Callable, wrapped: Callable) -> Callable:
    """Let axes of one name have one length in a call of a wrapped function; jaxtyping's switch leaves the function."""

    @wraps(function)
    def with_axes(*args: Any, **options: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **options)
        with _axes:
            return wrapped(*args, **options)

    return _hide(with_axes)


def _hide(function: FunctionType) -> FunctionType:
    """Let a function stand in a library, where messages look for no line of the user's."""
    function.__code__ = function.__code__.replace(co_filename=_PLACE)
    return function


def _resolved(annotation: Any, names: dict[str, Any]) -> Any:
    """Return an annotation without strings; any type where a name isn't there yet, or for type checkers only."""
    if isinstance(annotation, type) or annotation is None:
        return annotation

    def holder(value: annotation) -> None: ...

    try:
        return get_type_hints(holder, names, include_extras=True)["value"]
    except Exception:
        return Any
