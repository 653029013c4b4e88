"""Access to the parameters of JAX's primitives, which may change with a release of JAX."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core

from duat_jax.errors import UnsupportedProgram


def is_sharded(array: Any) -> bool:
    """Return whether an array's type says that it is distributed over an axis of devices.

    Args:
        array: any array.
    """
    return any(jax.typeof(array).sharding.spec)


def scopes_of(equation: core.JaxprEqn) -> tuple[str, ...]:
    """Return the `jax.named_scope`s around an equation, inside its own program.

    Args:
        equation: any equation.
    """
    # A scope that a transformation opened, such as `vmap`, is of another class.
    return tuple(s.name for s in equation.source_info.name_stack.stack if type(s).__name__ == "Scope")


def mantissa_bits(equation: core.JaxprEqn) -> int | None:
    """Return the bits of mantissa to which an equation rounds within its dtype, or `None`.

    Args:
        equation: any equation.
    """
    return _parameter(equation, "mantissa_bits") if equation.primitive.name == "reduce_precision" else None


# --- Calls ----------------------------------------------------------------------------------------------------------

CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "closed_call": "call_jaxpr",
    "call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Primitives that call one sub-program with their own operands, and the parameter that holds it."""

RECOMPUTED = frozenset(("remat2", "checkpoint"))
"""Calls whose inside is computed again in a transpose, instead of being stored."""

CUSTOM_RULES = frozenset(("custom_jvp_call", "custom_vjp_call"))
"""Calls whose derivative is the user's own."""


def _parameter(equation: core.JaxprEqn, name: str) -> Any:
    if name not in equation.params:
        raise UnsupportedProgram(
            f"{equation.primitive.name} has no parameter {name!r} in JAX {jax.__version__}: this version of JAX isn't"
            " supported yet; install one of the versions that duat-jax's documentation names"
        )
    return equation.params[name]


class SubProgram(NamedTuple):
    """A program that an equation runs.

    Args:
        jaxpr: its equations.
        consts: the values of its `constvars`.
    """

    jaxpr: core.Jaxpr
    consts: Sequence[Any]


def _sub_program(program: Any) -> SubProgram:
    # From JAX 0.11 on an open and a closed program are of one class.
    return SubProgram(getattr(program, "jaxpr", program), getattr(program, "consts", ()))


def sub_program(equation: core.JaxprEqn) -> SubProgram | None:
    """Return the program that a call or a scan runs, or `None` for any other equation.

    Args:
        equation: any equation.
    """
    name = equation.primitive.name
    if name == "scan":
        return _sub_program(_parameter(equation, "jaxpr"))
    return _sub_program(_parameter(equation, CALLS[name])) if name in CALLS else None


class Scan(NamedTuple):
    """The division of a scan's operands and results into constants, carries and stacked values.

    Args:
        consts: how many operands are constants; they come first.
        carries: how many are carried; as many results come first.
        length: number of steps.
        reverse: whether it runs backwards.
        unroll: steps per iteration of the compiled loop.
    """

    consts: int
    carries: int
    length: int
    reverse: bool
    unroll: int


def scan_of(equation: core.JaxprEqn) -> Scan:
    """Return the division of a scan's operands and results.

    Args:
        equation: a scan.

    Raises:
        UnsupportedProgram: if this version of JAX describes scans in another way.
    """
    if "ft_in" in equation.params:  # from JAX 0.11 on
        consts, carries, _ = map(len, equation.params["ft_in"].unpack())
    else:
        consts, carries = _parameter(equation, "num_consts"), _parameter(equation, "num_carry")
    return Scan(consts, carries, *(_parameter(equation, name) for name in ("length", "reverse", "unroll")))


def programs_in(equation: core.JaxprEqn) -> list[SubProgram]:
    """Return every program among an equation's parameters.

    Args:
        equation: any equation.
    """
    programs: list[SubProgram] = []

    def look(value: Any) -> None:
        if hasattr(value, "eqns"):
            programs.append(_sub_program(value))
        elif isinstance(value, tuple | list):
            for item in value:
                look(item)

    look(tuple(equation.params.values()))
    return programs


def reduced_axes_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return the axes of a reduction.

    Args:
        equation: a `reduce_sum`, `reduce_max` or their like, or a `reduce`.
    """
    return tuple(_parameter(equation, "dimensions" if equation.primitive.name == "reduce" else "axes"))


def broadcast_dimensions_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return the axes of a `broadcast_in_dim`'s result that correspond to those of its operand.

    Args:
        equation: a `broadcast_in_dim`.
    """
    return tuple(_parameter(equation, "broadcast_dimensions"))


def power_of(equation: core.JaxprEqn) -> int | None:
    """Return the exponent of an `integer_pow`, or `None` for any other equation.

    Args:
        equation: any equation.
    """
    return _parameter(equation, "y") if equation.primitive.name == "integer_pow" else None


def reducer_of(equation: core.JaxprEqn) -> str | None:
    """Return the binary primitive by which a `reduce` or `reduce_window` folds, or `None` for a longer rule.

    Args:
        equation: a `reduce` or `reduce_window`.
    """
    body = _sub_program(_parameter(equation, "jaxpr")).jaxpr
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
    """Return the windows over which an equation reduces.

    Args:
        equation: a `reduce_window`, `reduce_window_max` or their like.
    """
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    return Window(*(tuple(_parameter(equation, name)) for name in names))


def sort_of(equation: core.JaxprEqn) -> dict[str, Any]:
    """Return the settings of a `sort`, as `jax.lax.sort` takes them.

    Args:
        equation: a `sort`.
    """
    return {name: _parameter(equation, name) for name in ("dimension", "is_stable", "num_keys")}


def top_k_axis_of(equation: core.JaxprEqn) -> int:
    """Return the axis of a `top_k`.

    Args:
        equation: a `top_k`.
    """
    return equation.params.get("axis", -1)


def cumulation_of(equation: core.JaxprEqn) -> tuple[int, bool]:
    """Return the axis of a cumulative operation, and whether it runs backwards.

    Args:
        equation: a `cumsum`, `cumprod`, `cummax`, `cummin` or `cumlogsumexp`.
    """
    return _parameter(equation, "axis"), _parameter(equation, "reverse")


def scatter_of(equation: core.JaxprEqn) -> dict[str, Any]:
    """Return the settings of a scatter, as `jax.lax.scatter` takes them.

    Args:
        equation: a scatter of any kind.
    """
    names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    return {name: _parameter(equation, name) for name in names}


def overwrites(equation: core.JaxprEqn) -> bool:
    """Return whether a `scatter` replaces entries by its updates.

    Args:
        equation: a `scatter`; `x.at[i].apply(f)` is one too, with `f` as the update.
    """
    body = _sub_program(_parameter(equation, "update_jaxpr")).jaxpr
    return body is None or body.outvars == body.invars[1:]


def fill_value_of(equation: core.JaxprEqn) -> Any:
    """Return the value that a `gather` gives beyond its operand, or `None`.

    Args:
        equation: any equation.
    """
    return equation.params.get("fill_value") if equation.primitive.name == "gather" else None


def solve_constants_of(equation: core.JaxprEqn) -> int:
    """Return the number of operands of a `custom_linear_solve` that come before its right-hand sides.

    Args:
        equation: a `custom_linear_solve`.
    """
    return sum(_parameter(equation, "const_lengths"))


class While(NamedTuple):
    """The programs of a `while`, and its numbers of operands.

    Args:
        condition: the program that decides whether it goes on.
        body: the program of one step.
        of_condition: how many operands are the condition's own; they come first.
        of_body: how many are the body's own; they come next.
    """

    condition: core.Jaxpr
    body: core.Jaxpr
    of_condition: int
    of_body: int


def while_of(equation: core.JaxprEqn) -> While:
    """Return the programs of a `while` and its numbers of operands.

    Args:
        equation: a `while`.
    """
    condition, body = (_sub_program(_parameter(equation, name)).jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
    return While(condition, body, _parameter(equation, "cond_nconsts"), _parameter(equation, "body_nconsts"))


def without_derivative(equation: core.JaxprEqn) -> dict[str, Any]:
    """Return the parameters of an equation without the derivative of a `custom_jvp`.

    Args:
        equation: any equation.
    """
    return {name: value for name, value in equation.params.items() if name != "jvp_jaxpr_fun"}


def derivative_of(equation: core.JaxprEqn) -> Any:
    """Return the derivative of a `custom_jvp` as a program, or as a function if it can't be traced alone.

    Args:
        equation: any equation; only a `custom_jvp` has one.
    """
    rule = equation.params.get("jvp_jaxpr_fun")
    if rule is None or equation.params.get("symbolic_zeros", True):
        return rule
    try:
        return tuple(rule.call_wrapped(*[False] * (len(equation.invars) - _parameter(equation, "num_consts"))))
    except Exception:  # raised again where the derivative is needed
        return rule


def context_of(equation: core.JaxprEqn) -> Any:
    """Return the settings of JAX under which an equation was made.

    Args:
        equation: any equation.
    """
    return equation.ctx


def settings_of(equation: core.JaxprEqn) -> frozenset[tuple[str, Any]]:
    """Return all parameters of an equation, as a key by which two of one primitive are compared.

    Args:
        equation: any equation.
    """
    return frozenset(equation.params.items())


def role_of(mark: core.JaxprEqn) -> dict[str, Any]:
    """Return the parameters of a mark: its `kind`, its `name` and its `batch_axes`.

    Args:
        mark: the equation that marks.
    """
    return mark.params


def bind(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """Compute the results of an equation by its own primitive.

    Args:
        equation: any equation.
        operands: its operands.
    """
    parameters = equation.primitive.get_bind_params(equation.params)
    results = equation.primitive.bind(*operands, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]
