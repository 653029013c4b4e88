"""Products regrouped: a value is multiplied first by what is computed from it entry by entry, `x g(x)`.

So `z (σ(z) u)`, `(u z) σ(z)` and `u z / (1 + exp(−z))` are the activation `z σ(z)` times `u`, as `silu(z) u` is.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend import core

from duat_jax.marking.graph import ProgramGraph, Ref
from duat_jax.marking.regions import keeps_entries

MOST = 16
"""The factors of the longest product that is regrouped."""


class Factor(NamedTuple):
    """A factor of a product.

    Args:
        ref: its value, or a constant.
        divides: whether it is a divisor.
        side: the operand of the whole product that it stands in.
    """

    ref: Any
    divides: bool
    side: int


class Product(NamedTuple):
    """A product of products.

    Args:
        groups: its factors; those of a group are multiplied before the groups are.
        equations: an operation that multiplies, `"mul"`, and one that divides, `"div"`, where there are such factors.
    """

    groups: list[list[Factor]]
    equations: dict[str, core.JaxprEqn]


def regrouped(graph: ProgramGraph, equation: core.JaxprEqn, operands: Sequence[Ref]) -> Product | None:
    """Return the factors of a product in groups; `None` where those of each group are multiplied first already."""
    shape = _shape(equation)
    if not _is_product(equation, shape) or operands[0] == operands[1]:
        return None
    factors, equations = _factors(graph, equation, operands)
    full = [f for f in factors if isinstance(f.ref, int) and graph.shape(f.ref) == shape]
    values = sorted(full, key=lambda factor: (factor.ref, factor.divides))
    groups, separated = [], False
    while values:
        group = [f for f in values if _is_entrywise_function(graph, f.ref, argument=values[0].ref)]
        values = [f for f in values if f not in group]
        numerators = [f for f in group if not f.divides]
        if numerators:
            group = numerators + [f for f in group if f.divides]
            separated |= len({f.side for f in group}) > 1
        groups += [group] if numerators else [[f] for f in group]
    groups.sort(key=lambda group: group[0].divides)
    numbers = [[f] for f in factors if f not in full]
    scales = any(f.ref in graph.producer for (f,) in numbers if isinstance(f.ref, int))
    separated |= scales and len({f.side for f in full}) > 1
    return Product(groups + numbers, equations) if separated and (scales or len(groups) > 1) else None


def _factors(
    graph: ProgramGraph, equation: core.JaxprEqn, operands: Sequence[Ref]
) -> tuple[list[Factor], dict[str, core.JaxprEqn]]:
    """Return the factors of a product and of the products in it, and an operation of each kind; none if too many."""
    equations = {equation.primitive.name: equation}
    factors: list[Factor] = []
    shape = _shape(equation)
    waiting = _of_product(equation, operands)
    while waiting and len(factors) + len(waiting) <= MOST:
        factor = waiting.pop()
        made = None if factor.divides or not isinstance(factor.ref, int) else graph.producer.get(factor.ref)
        inner = made.equation if made is not None else None
        if made is not None and inner is not None and _is_product(inner, shape):
            equations[made.name] = inner
            waiting += _of_product(inner, made.operands, factor.side)
        else:
            factors.append(factor)
    return ([], {}) if waiting else (factors, equations)


def _is_product(equation: core.JaxprEqn, shape: tuple[int, ...]) -> bool:
    return equation.primitive.name in ("mul", "div") and _shape(equation) == shape


def _shape(equation: core.JaxprEqn) -> tuple[int, ...]:
    return tuple(getattr(equation.outvars[0].aval, "shape", ()))


def _of_product(equation: core.JaxprEqn, operands: Sequence[Ref], side: int | None = None) -> list[Factor]:
    divides = equation.primitive.name == "div"
    return [Factor(ref, divides and k == 1, k if side is None else side) for k, ref in enumerate(operands)]


def _is_entrywise_function(graph: ProgramGraph, value: int, argument: int) -> bool:
    """Return whether a value is another one, or depends on it entry by entry alone."""
    dependent = {argument}
    for node in sorted(graph.ancestors(value, after=argument), key=lambda node: node.results[0]):
        if not dependent.isdisjoint(ref for ref in node.operands if isinstance(ref, int)):
            if not keeps_entries(node) or any(graph.shape(v) != graph.shape(argument) for v in node.results):
                return False
            dependent |= set(node.results)
    return value in dependent
