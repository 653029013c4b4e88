"""Backward look-up of the equations that compute a program's variables."""

from typing import Any

import jax.numpy as jnp
from jax.extend import core

from duat_jax.transform.calls import sub_program
from duat_jax.transform.parameters import broadcast_dimensions_of, reorders, settings_of

CONVERTS = frozenset(("convert_element_type", "reduce_precision", "copy", "copy_p", "name", "optimization_barrier"))
"""Primitives that change the dtype at most."""

KEEPS_NUMBERS = CONVERTS | {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "stop_gradient"}
"""Primitives that change the shape or the dtype alone."""


def _is_exact(equation: core.JaxprEqn) -> bool:
    """Return whether an equation keeps numbers and their order, as a conversion to whole numbers doesn't."""
    before, after = (v.aval.dtype for v in (equation.invars[0], equation.outvars[0]))  # type: ignore[attr-defined]
    return (before == after or jnp.issubdtype(after, jnp.inexact)) and not reorders(equation)


class Definitions:
    """The equations that compute a program's variables; the first of those that compute the same.

    Args:
        jaxpr: the program.
    """

    def __init__(self, jaxpr: core.Jaxpr) -> None:
        self.equations = {v: equation for equation in jaxpr.eqns for v in equation.outvars}
        self.first: dict[Any, Any] = {}
        written: dict[Any, core.JaxprEqn] = {}
        for equation in jaxpr.eqns:
            try:
                operands = tuple(self._key(v) for v in equation.invars)
                first = written.setdefault((equation.primitive, operands, settings_of(equation)), equation)
            except TypeError:  # a parameter that can't be compared
                continue
            self.first |= dict(zip(equation.outvars, first.outvars, strict=True))

    def _key(self, v: Any) -> Any:
        return (v.aval, v.val) if isinstance(v, core.Literal) else self.first.get(v, v)

    def equation_of(self, v: Any, *names: str) -> core.JaxprEqn | None:
        """Return the equation that computes a variable."""
        equation = None if isinstance(v, core.Literal) else self.equations.get(self.first.get(v, v))
        return equation if equation is not None and (not names or equation.primitive.name in names) else None

    def root(self, v: Any, through: frozenset[str] = KEEPS_NUMBERS) -> Any:
        """Return the variable with the same numbers, before changes of shape and dtype."""
        while (equation := self.equation_of(v, *through)) is not None and _is_exact(equation):
            v = equation.invars[0]
        return v if isinstance(v, core.Literal) else self.first.get(v, v)

    def is_number(self, v: Any, number: float) -> bool:
        """Return whether all entries of a variable are one given constant."""
        root = self.root(v)
        return isinstance(root, core.Literal) and bool(root.val == number)

    def spread(self, v: Any) -> Any:
        """Return the operand that was broadcast to a variable by NumPy's rules, or `None` for any other change."""
        while (equation := self.equation_of(v, "broadcast_in_dim", *CONVERTS)) is not None and _is_exact(equation):
            if equation.primitive.name == "broadcast_in_dim":
                axes, shape = broadcast_dimensions_of(equation), v.aval.shape
                if axes != tuple(range(len(shape) - len(axes), len(shape))):
                    return None
            v = equation.invars[0]
        return v if isinstance(v, core.Literal) else self.first.get(v, v)

    def choice(self, v: Any) -> tuple[Any, ...] | None:
        """Return the condition and the cases of a variable computed by `select_n` or `jnp.where`, else `None`."""
        equation = self.equation_of(v)
        if equation is None:
            return None
        if equation.primitive.name == "select_n":
            return tuple(equation.invars)
        inner = sub_program(equation)
        if inner is None or len(inner.jaxpr.outvars) != 1 or equation.primitive.name == "scan":
            return None
        body = Definitions(inner.jaxpr)
        last = body.equation_of(inner.jaxpr.outvars[0], "select_n")
        if last is None:
            return None
        operands = dict(zip(inner.jaxpr.invars, equation.invars, strict=True))
        roots = [body.spread(operand) for operand in last.invars]
        resolved = all(isinstance(root, core.Literal) or root in operands for root in roots)
        return tuple(r if isinstance(r, core.Literal) else operands[r] for r in roots) if resolved else None


def is_along(definitions: Definitions, v: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a variable holds one number for each row of an array, brought into its shape."""
    v = definitions.root(v, CONVERTS | {"stop_gradient"})
    root, own = definitions.root(v), v.aval.shape
    rows = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    if not own:  # of a single row the number may stay without axes
        return all(size == 1 for size in rows)
    if len(own) != len(shape) or tuple(n for n in root.aval.shape if n != 1) != tuple(n for n in rows if n != 1):
        return False
    equation = definitions.equation_of(v, "broadcast_in_dim")
    if equation is None:
        return all(own[axis] == 1 for axis in axes)
    operand: Any = equation.invars[0]
    axes_of_operand, before = broadcast_dimensions_of(equation), operand.aval.shape
    return all(axis not in axes_of_operand or before[axes_of_operand.index(axis)] == 1 for axis in axes)
