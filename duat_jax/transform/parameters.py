"""The parameters of JAX's primitives: what a release of JAX may change, read in this file alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core

from duat_jax.errors import UnsupportedProgram


def is_sharded(array: Any) -> bool:
    """Return whether an array is known by its type to be distributed over an axis of devices.

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
    """Return to how many bits of mantissa an equation rounds within its dtype, or `None` where it doesn't.

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
"""Calls of which nothing inside is kept for a transpose: it is computed again."""

CUSTOM_RULES = frozenset(("custom_jvp_call", "custom_vjp_call"))
"""Calls whose derivative is the user's own."""


def _parameter(equation: core.JaxprEqn, name: str) -> Any:
    if name not in equation.params:
        raise UnsupportedProgram(
            f"{equation.primitive.name} has no parameter {name!r} in JAX {jax.__version__}: this version of JAX isn't"
            " supported yet; install one that duat-jax's documentation names"
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
    """How a scan's operands and results divide.

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
    """Return how a scan's operands and results divide.

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
    found: list[SubProgram] = []

    def look(value: Any) -> None:
        if hasattr(value, "eqns"):
            found.append(_sub_program(value))
        elif isinstance(value, tuple | list):
            for item in value:
                look(item)

    look(tuple(equation.params.values()))
    return found


def reduced_axes_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return over which axes a reduction goes.

    Args:
        equation: a `reduce_sum`, `reduce_max` or their like, or a `reduce`.
    """
    return tuple(_parameter(equation, "dimensions" if equation.primitive.name == "reduce" else "axes"))


def broadcast_dimensions_of(equation: core.JaxprEqn) -> tuple[int, ...]:
    """Return which axes of its result the operand's axes become in a `broadcast_in_dim`.

    Args:
        equation: a `broadcast_in_dim`.
    """
    return tuple(_parameter(equation, "broadcast_dimensions"))


def power_of(equation: core.JaxprEqn) -> int | None:
    """Return the exponent of an `integer_pow`, or `None` of any other equation.

    Args:
        equation: any equation.
    """
    return _parameter(equation, "y") if equation.primitive.name == "integer_pow" else None


def reducer_of(equation: core.JaxprEqn) -> str | None:
    """Return the primitive of two arguments by which a `reduce` or `reduce_window` folds, or `None` of a longer rule.

    Args:
        equation: a `reduce` or `reduce_window`.
    """
    body = _sub_program(_parameter(equation, "jaxpr")).jaxpr
    folds = len(body.eqns) == 1 and set(body.eqns[0].invars) == set(body.invars) and len(body.invars) == 2
    return body.eqns[0].primitive.name if folds and body.outvars == body.eqns[0].outvars else None


class Window(NamedTuple):
    """How windows lie on an array, axis by axis.

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
    """Return how the windows lie over which an equation reduces.

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
    """Return over which axis a `top_k` chooses.

    Args:
        equation: a `top_k`.
    """
    return equation.params.get("axis", -1)


def cumulation_of(equation: core.JaxprEqn) -> tuple[int, bool]:
    """Return over which axis a cumulative operation goes, and whether it goes backwards.

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
    """Return whether a `scatter` puts its updates in the place of what was there.

    Args:
        equation: a `scatter`; `x.at[i].apply(f)` is one too, with `f` as the update.
    """
    body = _sub_program(_parameter(equation, "update_jaxpr")).jaxpr
    return body is None or body.outvars == body.invars[1:]


def fill_value_of(equation: core.JaxprEqn) -> Any:
    """Return what a `gather` gives where it reads beyond its operand, or `None`.

    Args:
        equation: any equation.
    """
    return equation.params.get("fill_value") if equation.primitive.name == "gather" else None


def solve_constants_of(equation: core.JaxprEqn) -> int:
    """Return how many operands of a `custom_linear_solve` come before what is solved for.

    Args:
        equation: a `custom_linear_solve`.
    """
    return sum(_parameter(equation, "const_lengths"))


class While(NamedTuple):
    """How a `while` runs.

    Args:
        condition: the program that says whether it goes on.
        body: the program of one step.
        of_condition: how many operands are the condition's own; they come first.
        of_body: how many are the body's own; they come next.
    """

    condition: core.Jaxpr
    body: core.Jaxpr
    of_condition: int
    of_body: int


def while_of(equation: core.JaxprEqn) -> While:
    """Return how a `while` runs.

    Args:
        equation: a `while`.
    """
    condition, body = (_sub_program(_parameter(equation, name)).jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
    return While(condition, body, _parameter(equation, "cond_nconsts"), _parameter(equation, "body_nconsts"))


def without_derivative(equation: core.JaxprEqn) -> dict[str, Any]:
    """Return the parameters of an equation but the derivative of a `custom_jvp`.

    Args:
        equation: any equation.
    """
    return {name: value for name, value in equation.params.items() if name != "jvp_jaxpr_fun"}


def derivative_of(equation: core.JaxprEqn) -> Any:
    """Return the derivative of a `custom_jvp` as the program that it is, or the function if that can't be traced alone.

    Args:
        equation: any equation; another one has none.
    """
    rule = equation.params.get("jvp_jaxpr_fun")
    if rule is None or equation.params.get("symbolic_zeros", True):
        return rule
    try:
        return tuple(rule.call_wrapped(*[False] * (len(equation.invars) - _parameter(equation, "num_consts"))))
    except Exception:  # where it is needed, the error is met
        return rule


def context_of(equation: core.JaxprEqn) -> Any:
    """Return the settings of JAX under which an equation was made.

    Args:
        equation: any equation.
    """
    return equation.ctx


def settings_of(equation: core.JaxprEqn) -> frozenset[tuple[str, Any]]:
    """Return all parameters of an equation, by which two of one primitive may be told apart.

    Args:
        equation: any equation.
    """
    return frozenset(equation.params.items())


def role_of(mark: core.JaxprEqn) -> dict[str, Any]:
    """Return what a mark of our own says: its `kind`, its `name` and its `batch_axes`.

    Args:
        mark: the equation that marks.
    """
    return mark.params


def bind(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """Return an equation's results, computed as it is.

    Args:
        equation: any equation.
        operands: its operands.
    """
    parameters = equation.primitive.get_bind_params(equation.params)
    results = equation.primitive.bind(*operands, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]
