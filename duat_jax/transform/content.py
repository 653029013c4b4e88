"""The content of a program: equal programs share what was compiled for one of them."""

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax.extend import core

from duat_jax.transform.diagnosis import is_of_a_library, source_line
from duat_jax.transform.identities import is_marked
from duat_jax.transform.parameters import context_of, derivative_of, without_derivative

ORDERS = 2
"""The number of nested custom derivatives in a program's content: a derivative may call its own function."""


class Content:
    """A hashable description that is compared entry by entry once and then shares its entries with its equal.

    Args:
        entries: nested tuples.
    """

    def __init__(self, entries: Hashable) -> None:
        self._entries, self._hash = entries, hash(entries)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Content) or self._hash != other._hash or self._entries != other._entries:
            return False
        self._entries = other._entries
        return True


class _Itself:
    """An object that equals nothing but itself."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self._value is other._value


def content_of(jaxpr: core.Jaxpr, consts: Sequence[Any] = (), orders: int = ORDERS) -> Hashable:
    """Describe a program by its computations and source lines, without the names of its variables."""
    numbers: dict[Any, int] = {}
    describe = partial(described, orders=orders)

    def number(v: Any) -> Hashable:
        return (v.aval, described(np.asarray(v.val))) if isinstance(v, core.Literal) else numbers[v]

    def define(variables: Sequence[Any]) -> Hashable:
        for v in variables:
            numbers[v] = len(numbers)
        return tuple(v.aval for v in variables)

    def entries(equation: core.JaxprEqn) -> Hashable:
        return (
            equation.primitive,
            tuple(map(number, equation.invars)),
            define(equation.outvars),
            describe(without_derivative(equation)),
            described(derivative_of(equation), orders - 1) if orders and not is_marked(equation) else None,
            describe(context_of(equation)),
            frozenset(equation.effects),
            source_line(equation) if located else None,
        )

    # A call that is marked inside is followed operation by operation, so that its derivative is never asked for.
    # Operations inside a library's function are reported at the line that calls it.
    located = not is_of_a_library(jaxpr)
    return (
        located,
        define(jaxpr.constvars),
        define(jaxpr.invars),
        describe(tuple(consts)),
        tuple(map(entries, jaxpr.eqns)),
        tuple(map(number, jaxpr.outvars)),
    )


def described(value: Any, orders: int = ORDERS) -> Hashable:
    """Describe a value hashably: by its content where that is known, else by its identity."""
    if hasattr(value, "eqns"):
        return content_of(getattr(value, "jaxpr", value), getattr(value, "consts", ()), orders)
    if isinstance(value, tuple | list):
        return type(value), tuple(described(item, orders) for item in value)
    if isinstance(value, dict):
        return dict, tuple((key, described(item, orders)) for key, item in value.items())
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        # Bytes tell minus zero from zero, and a NaN equals itself.
        return np.ndarray, value.dtype, value.shape, value.tobytes()
    if isinstance(value, float | complex):
        return type(value), repr(value)
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return type(value), value
