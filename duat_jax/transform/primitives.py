"""Tables of JAX's primitives: which are linear, which act entry by entry, and which are refused."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from duat_jax.transform.calls import CALLS
from duat_jax.transform.identities import fence_p, mark_p
from duat_jax.transform.parameters import (
    bind,
    fill_value_of,
    overwrites,
    power_of,
    ragged_of,
    reduced_axes_of,
    reducer_of,
    scatter_of,
    solve_constants_of,
    window_of,
)

ALL, FIRST, ONE = "all", "first", "one"
"""Linear in all operands together, in the first one, in any single one with the others fixed."""

LINEAR: dict[str, str | tuple[int, ...]] = {
    **dict.fromkeys(
        (
            *("add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "reduce_window_sum", "convert_element_type"),
            *("broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "concatenate", "slice", "split"),
            *("stack", "unstack", "rev", "tile", "pad", "fft", "copy", "copy_p", "name", mark_p.name, fence_p.name),
            *("reduce_precision", "real", "imag", "conj", "complex", "optimization_barrier"),
            *("sharding_constraint", "layout_constraint", "reshard", "device_put"),
            *("with_memory_space_constraint", "psum", "psum_invariant", "pvary", "pbroadcast", "ppermute"),
            *("all_gather", "all_gather_invariant", "all_gather_reduced", "all_to_all", "reduce_scatter"),
        ),
        ALL,
    ),
    **dict.fromkeys(("gather", "dynamic_slice", "div"), FIRST),
    **dict.fromkeys(("mul", "dot_general", "ragged_dot_general", "conv_general_dilated"), ONE),
    "dynamic_update_slice": (0, 1),
    "scatter-add": (0, 2),
    "scatter-sub": (0, 2),
    "scatter": (0, 2),
    "scatter-mul": (0,),
    "triangular_solve": (1,),
    "tridiagonal_solve": (3,),
}
"""The operands in which each primitive is linear.  `select_n`, calls, `cond` and `custom_linear_solve` have rules of
their own."""

FOLLOWED = frozenset(
    (*CALLS, "scan", "cond", "shard_map", "select_n", "custom_linear_solve", "integer_pow", "reduce", "reduce_window")
)
"""Primitives with a rule of their own."""

DIFFERENTIATED = ("jit", "scan", "cond", "shard_map", "compute_on", "program_order", "xla_metadata_call", "eval_jaxpr")
"""Primitives with a program inside, of which JAX makes another one while it differentiates."""

REFUSED = {
    "while": "a lax.while_loop of unknown length has no transpose: use lax.scan, or a Python loop",
    "composite": "its decomposition belongs to a compiler: call the function itself",
    **dict.fromkeys(
        ("pure_callback", "io_callback", "ffi_call", "debug_callback", "debug_print"),
        "code that runs outside of JAX can't be traced: let nothing that flows pass through it",
    ),
    **dict.fromkeys(
        ("select_and_gather_add", "select_and_scatter_add"),
        "it belongs to the derivative of a maximum: mark the maximum's result with hold(x, name)",
    ),
    "polynomial": "it is linear in its coefficients, which don't flow in any model: write it as products and sums",
    **dict.fromkeys(
        ("ragged_all_to_all", "unreduced_psum", "unreduced_reduce_scatter", "pbroadcast_dynamic", "preduced"),
        "this exchange between devices isn't tested: gather what flows before it",
    ),
    **dict.fromkeys(
        ("global_array_to_host_local_array", "host_local_array_to_global_array"),
        "arrays of one host aren't tested: convert them outside of the function",
    ),
    **dict.fromkeys(
        ("reduced_vary_cast_p", "vary_unreduced_cast_p", "reduced_vary_cast", "vary_unreduced_cast"),
        "partial sums on devices aren't tested: sum them before they flow on",
    ),
    **dict.fromkeys(
        (
            "custom_lin",
            "linear_call",
            "call_hi_primitive",
            "call_hi_primitive_linearized",
            "remat_opt",
            "stage",
            "tie",
            "program_order",
            "dce_sink",
            *(f"vjp_node[{name}]" for name in DIFFERENTIATED),
        ),
        "JAX creates it while it differentiates: pass the function itself, not the result of jax.linearize or jax.vjp",
    ),
    **dict.fromkeys(
        ("from_edtype", "to_edtype", "relayout"), "only plain arrays of numbers are followed: convert them before"
    ),
    **dict.fromkeys(
        ("box_get", "box_set", "new_box", "new_log", "log_extend", "log_read", "get", "swap", "addupdate"),
        "state that changes isn't followed: pass it as an argument and return it",
    ),
}
"""Primitives that JAX can transpose but that aren't followed, and the reason or a way out."""

NONLINEAR = {
    **dict.fromkeys(
        ("exp", "exp2", "reduce_max", "reduce_min", "max", "min", "argmax", "argmin", "sort"),
        "mark the attention pattern with hold(pattern, name), or an activation with term(activation, z, name)",
    ),
    **dict.fromkeys(
        ("rsqrt", "sqrt", "integer_pow", "square", "pow", "abs"),
        "mark a normalisation's scale with hold(scale, name), or an activation with term(activation, z, name)",
    ),
    **dict.fromkeys(
        ("tanh", "logistic", "erf", "erfc", "log", "log1p", "expm1", "sin", "cos", "clamp", "sign"),
        "mark the activation with term(activation, z, name)",
    ),
    **dict.fromkeys(
        ("mul", "dot_general", "div", "conv_general_dilated", "ragged_dot_general"),
        "mark the factor that is a dynamic parameter (a pattern, gate or scale) with hold(factor, name)",
    ),
    **dict.fromkeys(
        ("gt", "lt", "ge", "le", "eq", "ne", "select_n", "cond", "gather", "dynamic_slice"),
        "mark the condition (a comparison, an index, a router's choice) with hold(x, name)",
    ),
    "stop_gradient": "leave it out, or mark its operand as a dynamic parameter with hold(x, name)",
}
"""Primitives that aren't linear, or not in two flowing operands, and advice on the missing mark."""


def linear_operands(equation: core.JaxprEqn, flowing: Sequence[int]) -> tuple[int, ...] | None:
    """Return the operands in which an equation is linear together, or `None` where its primitive isn't in the table."""
    name, count = equation.primitive.name, len(equation.invars)
    if name == "select_n":
        return tuple(range(1, count))
    if name == "integer_pow":
        return (0,) if power_of(equation) == 1 else None
    if name == "reduce":
        return tuple(range(count)) if reducer_of(equation) == "add" else None
    if name == "reduce_window":
        return tuple(range(count)) if reducer_of(equation) == "add" and _begins_once(equation) else None
    if name == "scatter" and not overwrites(equation):
        return None
    if name == "custom_linear_solve":
        return tuple(range(solve_constants_of(equation), count))
    rule = LINEAR.get(name)
    if rule is None or isinstance(rule, tuple):
        return rule
    return {ALL: tuple(range(count)), FIRST: (0,), ONE: tuple(flowing[:1])}[rule]


def _begins_once(equation: core.JaxprEqn) -> bool:
    """Return whether a `reduce_window` adds its initial value exactly once."""
    # By the specification padded entries hold the initial value too; compilers leave them out.
    window, initial = window_of(equation), equation.invars[1]
    padded = any(map(any, window.padding)) or any(apart != 1 for apart in window.base_dilation)
    return not padded or (isinstance(initial, core.Literal) and not np.any(np.asarray(initial.val)))


def adds_a_constant(equation: core.JaxprEqn) -> bool:
    """Return whether a linear primitive's result may be nonzero where all its operands are zero."""
    fill = fill_value_of(equation)
    return fill is not None and bool(np.any(np.asarray(fill)))


def _scatter(equation: core.JaxprEqn, operand: Any, indices: Any, updates: Any) -> list[Any]:
    """Overwrite by choosing the last update of every entry: JAX transposes unique indices only."""
    settings = scatter_of(equation)
    if settings.pop("unique_indices"):
        return bind(equation, [operand, indices, updates])
    order = jnp.arange(updates.size, dtype=jnp.int32).reshape(updates.shape)
    winner = lax.scatter(jnp.full(operand.shape, -1, jnp.int32), indices, order, **settings)
    return [jnp.where(winner < 0, operand, updates.reshape(-1)[jnp.maximum(winner, 0)])]


def _reduce(equation: core.JaxprEqn, *operands: Any) -> list[Any]:
    if reducer_of(equation) != "add":
        return bind(equation, operands)
    operand, initial = operands
    return [operand.sum(reduced_axes_of(equation)) + initial]


def _reduce_window(equation: core.JaxprEqn, *operands: Any) -> list[Any]:
    if linear_operands(equation, ()) is None:
        return bind(equation, operands)
    operand, initial = operands
    zero = np.zeros((), operand.dtype)
    return [lax.reduce_window(operand, zero, lax.add, *window_of(equation)) + initial]


def _integer_power(equation: core.JaxprEqn, x: Any) -> list[Any]:
    return [x] if power_of(equation) == 1 else bind(equation, [x])


def _gather(equation: core.JaxprEqn, operand: Any, *indices: Any) -> list[Any]:
    """Gather out of half precision in single: transposed, it sums over all places that read one entry."""
    if not jnp.issubdtype(operand.dtype, jnp.floating) or jnp.finfo(operand.dtype).bits > 16:
        return bind(equation, [operand, *indices])
    (gathered,) = bind(equation, [lax.convert_element_type(operand, jnp.float32), *indices])
    return [lax.convert_element_type(gathered, operand.dtype)]


def _ragged_product(equation: core.JaxprEqn, lhs: Any, rhs: Any, sizes: Any) -> list[Any]:
    """Multiply group by group what JAX transposes only where the groups are of rows."""
    numbers, settings = ragged_of(equation)
    contracted, batch = numbers.dot_dimension_numbers
    (axis,) = numbers.lhs_ragged_dimensions
    if axis in batch[0]:
        return [lax.dot_general(lhs, rhs, (contracted, batch), **settings)]
    if axis not in contracted[0]:
        return bind(equation, [lhs, rhs, sizes])
    # Groups may begin elsewhere for every entry of the axes that come before the ragged one.
    around = [*batch[0], *contracted[0][: contracted[0].index(axis)]][: sizes.ndim - 1]
    place = lax.broadcasted_iota(sizes.dtype, lhs.shape, axis)

    def of_group(size: Any, end: Any) -> Any:
        start, end = (
            lax.broadcast_in_dim(z.transpose(np.argsort(around)), lhs.shape, sorted(around)) for z in (end - size, end)
        )
        inside = jnp.where((start <= place) & (place < end), lhs, jnp.zeros((), lhs.dtype))
        return lax.dot_general(inside, rhs, (contracted, batch), **settings)

    return [jax.vmap(of_group, in_axes=-1)(sizes, jnp.cumsum(sizes, -1, sizes.dtype))]


TRANSPOSABLE: dict[str, Callable[..., list[Any]]] = {
    "scatter": _scatter,
    "gather": _gather,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "integer_pow": _integer_power,
    "ragged_dot_general": _ragged_product,
    "name": lambda _, x: [x],
    "optimization_barrier": lambda _, *operands: [lax.optimization_barrier(x) for x in operands],
}
"""Linear primitives that JAX transposes in some cases only, or not exactly, written with those that it always does."""


def apply(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """Compute the results of an equation by primitives that JAX can transpose."""
    rewrite = TRANSPOSABLE.get(equation.primitive.name)
    return bind(equation, operands) if rewrite is None else rewrite(equation, *operands)


# --- Elementwise primitives ----------------------------------------------------------------------------------------

ELEMENTWISE = frozenset(
    (
        *("add", "add_any", "sub", "mul", "div", "rem", "neg", "sign", "abs", "max", "min", "clamp", "select_n"),
        *("exp", "exp2", "expm1", "log", "log1p", "logistic", "tanh", "sinh", "cosh", "asinh", "acosh", "atanh"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "erf", "erfc", "erf_inv", "lgamma", "digamma"),
        *("sqrt", "rsqrt", "cbrt", "square", "pow", "integer_pow", "nextafter", "floor", "ceil", "round"),
        *("polygamma", "igamma", "igammac", "regularized_incomplete_beta", "bessel_i0e", "bessel_i1e"),
        *("log2", "one_minus_square", "polynomial"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "is_finite", "stop_gradient"),
        *("convert_element_type", "reduce_precision", "real", "imag", "conj", "complex", "copy", "copy_p", "name"),
        mark_p.name,
    )
)
"""Primitives each entry of whose result depends on the same entry of its operands alone, where shapes are equal."""

KEEPS_PLACE = frozenset(
    (
        *("reshape", "broadcast_in_dim", "transpose", "squeeze", "expand_dims"),
        *("optimization_barrier", "sharding_constraint", "reshard"),
    )
)
"""Primitives that compute nothing: they may move axes, or add and remove axes with one entry."""

MIXES_AXES = frozenset(
    (
        *(
            "concatenate",
            "stack",
            "rev",
            "sort",
            "cumsum",
            "cumprod",
            "cummax",
            "cummin",
            "cumlogsumexp",
            "argmax",
            "argmin",
        ),
        *("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor"),
    )
)
"""Primitives that mix entries along the axes that a parameter names, and nowhere else."""
