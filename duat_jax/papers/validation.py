"""Checks of arguments of the papers' experiments, each a list of sentences, and one error that has them all."""

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from duat_jax.errors import InvalidInput

POINTS = 3
"""The number of points whose shape a function is tried on."""
MANY = 256
"""The number of random points that a function has to be finite on."""


def too_small(least: int, **numbers: Any) -> list[str]:
    """Return a sentence for every number that isn't an integer of at least a given size.

    Example:
        >>> too_small(1, neurons=0, steps=5)
        ['neurons is 0: give an integer of at least 1']
    """
    return [
        f"{name} is {number!r}: give an integer of at least {least}"
        for name, number in numbers.items()
        if isinstance(number, bool) or not hasattr(number, "__index__") or int(number) < least
    ]


def bad_number(**numbers: Any) -> list[str]:
    """Return a sentence for every number that is negative or not finite, or no number.

    Example:
        >>> bad_number(rate=-0.1)
        ['rate is -0.1: give a finite number of at least 0']
    """

    def fits(number: Any) -> bool:
        try:
            return 0 <= float(number) < math.inf
        except (TypeError, ValueError):
            return False

    return [
        f"{name} is {number!r}: give a finite number of at least 0"
        for name, number in numbers.items()
        if isinstance(number, str) or not fits(number)
    ]


def _is_key(key: Any) -> bool:
    """Return whether this is a random key, or an array of some."""
    return isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def one_key(key: Any) -> list[str]:
    """Return a sentence if this isn't one random key.

    Example:
        >>> one_key(0)
        ['key is no random key: give jax.random.key(0)']
    """
    return [] if _is_key(key) and not key.ndim else ["key is no random key: give jax.random.key(0)"]


def many_keys(keys: Any) -> list[str]:
    """Return a sentence if there isn't a key for each of several seeds.

    Example:
        >>> many_keys(jax.random.split(jax.random.key(0), 2))
        []
    """
    if _is_key(keys) and keys.ndim == 1 and len(keys):
        return []
    return ["keys isn't an array of random keys, [seeds]: give jax.random.split(jax.random.key(0), seeds)"]


def returns(function: Any, dimensions: int) -> list[str]:
    """Return a sentence if a function of points doesn't return a finite number for each.

    Example:
        >>> returns(lambda x: x, 2)
        ['the function returns [3, 2] at 3 points of 2 dimensions: return a number for each point, [3]']
    """
    if not callable(function):
        return [f"the function is {function!r}: give a function of points, such as duat.papers.FUNCTIONS['wave']"]
    of_dimensions = f"points of {dimensions} dimension{'s' * (dimensions > 1)}"
    try:
        # NumPy refuses a coordinate that isn't there, where JAX reads the last one.
        with suppress(TypeError, AttributeError):
            function(np.full((POINTS, dimensions), 0.5))
        # Of a function of its own, since `eval_shape` keeps a weak reference, which NumPy's have none of.
        shape = getattr(jax.eval_shape(lambda x: function(x), jnp.zeros((POINTS, dimensions))), "shape", None)
    except IndexError:
        return [f"the function reads a coordinate that {of_dimensions} don't have: give a function of these"]
    except jax.errors.TracerArrayConversionError:
        return ["the function computes with NumPy: write it with jax.numpy"]
    if shape == (POINTS,):
        values = function(jax.random.uniform(jax.random.key(0), (MANY, dimensions)))
        return (
            [] if jnp.isfinite(values).all() else ["the function isn't finite everywhere on the cube: give one that is"]
        )
    returned = "no array" if shape is None else f"[{', '.join(map(str, shape))}]"
    where = f"at {POINTS} {of_dimensions}"
    return [f"the function returns {returned} {where}: return a number for each point, [{POINTS}]"]


def another_kind(kind: type, **objects: Any) -> list[str]:
    """Return a sentence for every object that isn't of a kind.

    Example:
        >>> another_kind(str, task=3)
        ['task is of type int: give a str']
    """
    return [
        f"{name} is of type {type(given).__name__}: give a {kind.__name__}"
        for name, given in objects.items()
        if not isinstance(given, kind)
    ]


def refuse(wrong: Iterable[str]) -> None:
    """Raise one error that names everything that is wrong, if anything is.

    Example:
        >>> refuse([])
    """
    if sentences := "; ".join(wrong):
        raise InvalidInput(sentences)


def unknown(argument: str, name: str, names: Iterable[str]) -> list[str]:
    """Return a sentence if a name isn't one of some.

    Example:
        >>> unknown("kind", "mlp", ["perceptron", "transformer"])
        ["kind is 'mlp': give 'perceptron' or 'transformer'"]
    """
    known = list(names)
    if name in known:
        return []
    *first, last = map(repr, known)
    return [f"{argument} is {name!r}: give {', '.join(first)}{' or ' * bool(first)}{last}"]
