"""Access to the parameters of JAX's primitives, which may change with a release of JAX."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from duat_jax.transform.calls import closed, parameter_of


def is_sharded(array: Any) -> bool:
    """Return whether an array's type says that it is distributed over an axis of devices."""
    return any(jax.typeof(array).sharding.spec)


def scopes_of(equation: core.JaxprEqn) -> tuple[str, ...]:
    """Return the `jax.named_scope`s around an equation, inside its own program."""
    # A scope that a transformation opened, such as `vmap`, is of another class.
    return tuple(s.name for s in equation.source_info.name_stack.stack if type(s).__name__ == "Scope")


def mantissa_bits(equation: core.JaxprEqn) -> int | None:
    """Return the bits of mantissa to which an equation rounds within its dtype, or `None`."""
    return parameter_of(equation, "mantissa_bits") if equation.primitive.name == "reduce_precision" else None


def reduced_axes_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return the axes of a reduction."""
    return tuple(parameter_of(equation, "dimensions" if equation.primitive.name == "reduce" else "axes"))


def broadcast_dimensions_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return the axes of a `broadcast_in_dim`'s result that correspond to those of its operand."""
    return tuple(parameter_of(equation, "broadcast_dimensions"))


def permutation_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return the axes of a `transpose`'s operand in the order of its result."""
    return tuple(parameter_of(equation, "permutation"))


def contraction_of(equation: core.JaxprEqn) -> tuple[tuple[Sequence[int], Sequence[int]], ...]:
    """Return the axes of both factors that a `dot_general` contracts, and those that it maps over."""
    return parameter_of(equation, "dimension_numbers")


def output_features_of(equation: core.JaxprEqn) -> int:
    """Return the axis of a convolution's result that has its features."""
    return parameter_of(equation, "dimension_numbers").out_spec[1]


def reorders(equation: core.JaxprEqn) -> bool:
    """Return whether a `reshape` reads its operand's axes in another order, as a transposition does."""
    return equation.primitive.name == "reshape" and equation.params.get("dimensions") is not None


def mixed_axes_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return the axes along which an equation mixes entries."""
    names = ("axes", "axis", "dimension", "dimensions")
    (axes,) = (equation.params[name] for name in names if name in equation.params)
    return tuple(axes) if isinstance(axes, tuple | list) else (axes,)


def reduces(equation: core.JaxprEqn) -> bool:
    """Return whether an equation removes the axes along which it mixes entries."""
    return equation.primitive.name.startswith(("reduce_", "arg"))


def power_of(equation: core.JaxprEqn) -> int | None:
    """Return the exponent of an `integer_pow`, or `None` for any other equation."""
    return parameter_of(equation, "y") if equation.primitive.name == "integer_pow" else None


def reducer_of(equation: core.JaxprEqn) -> str | None:
    """Return the binary primitive by which a `reduce` or `reduce_window` folds, or `None` for a longer rule."""
    body = closed(parameter_of(equation, "jaxpr")).jaxpr
    folds = len(body.eqns) == 1 and set(body.eqns[0].invars) == set(body.invars) and len(body.invars) == 2
    return body.eqns[0].primitive.name if folds and body.outvars == body.eqns[0].outvars else None


class Window(NamedTuple):
    """The sizes and places of windows on an array, axis by axis.

    Args:
        sizes: how many entries a window has.
        strides: how far apart windows begin.
        padding: how many entries are added before and after.
        base_dilation: how far apart the array's entries lie.
        dilation: how far apart a window's entries lie.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    base_dilation: tuple[int, ...]
    dilation: tuple[int, ...]


def window_of(equation: core.JaxprEqn) -> Window:
    """Return the windows over which an equation reduces."""
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return Window(*(tuple(parameter_of(equation, name)) for name in names))


def sort_of(equation: core.JaxprEqn) -> dict[str, Any]:
    """Return the settings of a `sort`, as `jax.lax.sort` takes them."""
    return {name: parameter_of(equation, name) for name in ("dimension", "is_stable", "num_keys")}


def top_k_axis_of(equation: core.JaxprEqn) -> int:
    """Return the axis of a `top_k`."""
    return equation.params.get("axis", -1)


def cumulation_of(equation: core.JaxprEqn) -> tuple[int, bool]:
    """Return the axis of a cumulative operation, and whether it runs backwards."""
    return parameter_of(equation, "axis"), parameter_of(equation, "reverse")


def scatter_of(equation: core.JaxprEqn) -> dict[str, Any]:
    """Return the settings of a scatter, as `jax.lax.scatter` takes them."""
    names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    return {name: parameter_of(equation, name) for name in names}


def overwrites(equation: core.JaxprEqn) -> bool:
    """Return whether a `scatter` replaces entries by its updates."""
    body = closed(parameter_of(equation, "update_jaxpr")).jaxpr
    return body is None or body.outvars == body.invars[1:]


def fill_value_of(equation: core.JaxprEqn) -> Any:
    """Return the value that a `gather` gives beyond its operand, or `None`."""
    return equation.params.get("fill_value") if equation.primitive.name == "gather" else None


def ragged_of(equation: core.JaxprEqn) -> tuple[Any, dict[str, Any]]:
    """Return the kinds of the axes of a `ragged_dot_general`, and its other settings as `dot_general` takes them."""
    settings = {name: parameter_of(equation, name) for name in ("precision", "preferred_element_type")}
    return parameter_of(equation, "ragged_dot_dimension_numbers"), settings


def solve_constants_of(equation: core.JaxprEqn) -> int:
    """Return the number of operands of a `custom_linear_solve` that come before its right-hand sides."""
    return sum(parameter_of(equation, "const_lengths"))


def without_derivative(equation: core.JaxprEqn) -> dict[str, Any]:
    """Return the parameters of an equation without the derivative of a `custom_jvp`."""
    return {name: value for name, value in equation.params.items() if name != "jvp_jaxpr_fun"}


def derivative_of(equation: core.JaxprEqn) -> Any:
    """Return the derivative of a `custom_jvp` as a program, or as a function if it can't be traced alone."""
    rule = equation.params.get("jvp_jaxpr_fun")
    if rule is None or equation.params.get("symbolic_zeros", True):
        return rule
    try:
        return tuple(rule.call_wrapped(*[False] * (len(equation.invars) - parameter_of(equation, "num_consts"))))
    except Exception:  # raised again where the derivative is needed
        return rule


def context_of(equation: core.JaxprEqn) -> Any:
    """Return the settings of JAX under which an equation was made."""
    return equation.ctx


def settings_of(equation: core.JaxprEqn) -> frozenset[tuple[str, Any]]:
    """Return all parameters of an equation, as a key by which two of one primitive are compared."""
    return frozenset(equation.params.items())


def with_parameters(equation: core.JaxprEqn, replaced: Callable[[Any], Any]) -> core.JaxprEqn:
    """Return an equation with other parameters."""
    return equation.replace(params={name: replaced(value) for name, value in equation.params.items()})


def checkpointed(equation: core.JaxprEqn, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is rematerialised in the same way as a region."""
    settings = {name: parameter_of(equation, name) for name in ("prevent_cse", "policy")}
    return jax.checkpoint(run, **settings)


def role_of(mark: core.JaxprEqn) -> dict[str, Any]:
    """Return the parameters of a mark: its `kind`, its `name` and its `batch_axes`."""
    return mark.params


def bind(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """Compute the results of an equation by its own primitive."""
    parameters = equation.primitive.get_bind_params(equation.params)
    results = equation.primitive.bind(*operands, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


def bind_in_double(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """Compute the results of an equation in double precision, as precisely as that allows."""

    def converted(name: str, value: Any) -> Any:
        if name == "precision" and value is not None:
            return (jax.lax.Precision.HIGHEST,) * 2
        if not isinstance(value, np.dtype | type) or not jax.dtypes.issubdtype(value, np.inexact):
            return value
        return np.dtype(np.complex128 if jax.dtypes.issubdtype(value, np.complexfloating) else np.float64)

    parameters = {name: converted(name, value) for name, value in equation.params.items()}
    results = equation.primitive.bind(*operands, **equation.primitive.get_bind_params(parameters))
    return list(results) if equation.primitive.multiple_results else [results]
