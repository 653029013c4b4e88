"""Whether a sum that is off is that of a function which cancels by itself, decided in double precision."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import register_static
from jaxtyping import Array

from duat_jax.forms.completeness import FACTOR, Completeness
from duat_jax.processes import on_host
from duat_jax.transform.double_precision import EXACT, DoublePrecision, double
from duat_jax.transform.mark_places import Path
from duat_jax.transform.program import Program
from duat_jax.transform.rounding import eps_of

SUMS = frozenset(
    (
        *("add", "add_any", "sub", "reduce_sum", "cumsum", "reduce_window_sum", "scatter-add", "scatter-sub"),
        *("dot_general", "ragged_dot_general", "conv_general_dilated"),
    )
)
"""Primitives at which numbers may cancel."""

EPS = float(np.finfo(np.float64).eps)


@register_static
class Line(str):
    """A primitive and its source line, which JAX's transformations leave alone."""


class _Owed(NamedTuple):
    """The shares `∂f/∂v · v` of every value `v` of a program, by the path of its equation.

    Args:
        squares: the sum of their squares.
        nonzero: how many aren't zero.
    """

    squares: dict[Path, float]
    nonzero: float


class DifferenceRounding(NamedTuple):
    """The rounding of a function's difference, value by value, to first order.

    Args:
        bound: of the difference in the program's own dtypes.
        in_double: the same in double precision.
        line: the sum or product at which the function loses most digits.
    """

    bound: float
    in_double: float
    line: Line


def rounding_of_difference(
    program: Program, constants: list[Any], xs: list[Array], ys: list[Array]
) -> DifferenceRounding:
    """Return the rounding of `f(x) − f(y)` to first order, by the rule of completeness for all values on the way."""
    # A value `v` that is rounded to `eps` moves the result by `eps · v · ∂f/∂v`. Errors add like a root of squares,
    # 4 · log₂(n + 4) · √(Σ (eps_v · v · ∂f/∂v)²)
    # over the `n` values at both inputs. Derivatives and values are computed in double precision.
    evaluation = DoublePrecision(program.jaxpr, constants)
    owed = [_owed(evaluation, leaves) for leaves in (xs, ys)]
    squares = {path: sum(each.squares[path] for each in owed) for path in owed[0].squares}
    factor = FACTOR * np.log2(sum(each.nonzero for each in owed) + 4)
    eps = {path: _eps_at(evaluation, path, xs) for path in squares}

    def size(path: Path) -> float:
        return eps[path] ** 2 * squares[path]

    def loss(path: Path) -> float:
        before = max((squares[place] for place in evaluation.steps[path].operands if place in squares), default=0)
        return eps[path] ** 2 * (before - squares[path])

    steps = [path for path in squares if path in evaluation.steps]
    sums = [path for path in steps if evaluation.steps[path].equation.primitive.name in SUMS]
    worst = evaluation.steps[max(sums or steps, key=loss)]
    name = worst.equation.primitive.name
    return DifferenceRounding(
        factor * float(np.sqrt(sum(map(size, squares)))),
        factor * EPS * float(np.sqrt(sum(squares.values()))),
        Line(f"{name} at {worst.line}" if worst.line else name),
    )


def _eps_at(evaluation: DoublePrecision, path: Path, leaves: list[Array]) -> float:
    if path in evaluation.steps:
        equation = evaluation.steps[path].equation
        return 0.0 if equation.primitive.name in EXACT else eps_of(equation)
    return float(jnp.finfo(leaves[-1 - path[0]].dtype).eps)


def _owed(evaluation: DoublePrecision, leaves: list[Array]) -> _Owed:
    leaves = list(map(double, leaves))
    moving = {(-1 - i,): leaf for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)}

    def value(shifts: dict[Path, Any]) -> tuple[Array, dict[Path, Any]]:
        shifted = [leaf + shifts[(-1 - i,)] if (-1 - i,) in moving else leaf for i, leaf in enumerate(leaves)]
        result, seen = evaluation(shifted, shifts)
        return result, seen | moving

    seen = jax.eval_shape(lambda: value(jax.tree.map(jnp.zeros_like, moving)))[1]

    @jax.jit
    def shares() -> dict[Path, tuple[Array, Array]]:
        zeros = jax.tree.map(lambda like: jnp.zeros(like.shape, jnp.float64), seen)
        slopes, values = jax.grad(value, has_aux=True)(zeros)
        # Where no derivative exists nothing is owed: the bound is smaller, and the verdict stricter.
        terms = jax.tree.map(lambda u, v: jnp.nan_to_num(u * v, nan=0, posinf=0, neginf=0), slopes, values)
        return {
            path: (
                jnp.stack([(term * term).sum() for term in jax.tree.leaves(arrays)]).sum(),
                jnp.stack([jnp.count_nonzero(term) for term in jax.tree.leaves(arrays)]).sum(),
            )
            for path, arrays in terms.items()
        }

    sums = on_host(shares())
    return _Owed({path: float(s) for path, (s, _) in sums.items()}, float(sum(n for _, n in sums.values())))


def explains(rounding: DifferenceRounding, judged: Completeness, in_double: Completeness) -> bool:
    """Return whether rounding of the function alone may be the error of a sum."""
    pairs = ((judged, rounding.bound), (in_double, rounding.in_double))
    return all(bool(abs(float(sum_.error)) <= bound) for sum_, bound in pairs)
