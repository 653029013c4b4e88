"""Read off the parameters of Eq. 20 from a layer that is written as an expression of the stream."""

from typing import NamedTuple

from sympy import MatrixExpr, ZeroMatrix

from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition
from symbolic.equality.factorisation import factored
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import ResidualStack, i


class _Inside(NamedTuple):
    """A pre-activation, `inner x + bias + Σ coupling σ(an earlier one)`."""

    activation: Activation
    inner: MatrixExpr
    bias: MatrixExpr
    couplings: dict[int, MatrixExpr]


def _visit(activation: Activation, x: Parameter, visited: list[_Inside]) -> int:
    """Append an activation to the list, behind those inside it, and return its number, from 1."""
    for number, known in enumerate(visited, 1):
        if known.activation == activation:
            return number
    if activation.order:
        raise SymbolicError(
            f"{activation} is a slope of the stream, and no layer's activation: hold it, as a parameter of its own"
        )
    sorted_by_x = collect(activation.argument, x)
    couplings = {_visit(term.activation, x, visited): term.outer for term in sorted_by_x.terms}
    visited.append(_Inside(activation, sorted_by_x.path, sorted_by_x.offset, couplings))
    return len(visited)


class Reading(NamedTuple):
    """A layer as an instance of Eq. 20.

    Args:
        stack: the symbols of a stack of such layers, with as many terms as the layer has activations.
        parameters: the definitions of `W'_{i+1,k}` and `b'_{i+1,k}`.
    """

    stack: ResidualStack
    parameters: tuple[Definition, ...]


def read(layer: MatrixExpr, x: Parameter, relations: tuple[Definition, ...] = ()) -> Reading:
    """Sort a layer by the stream: linear path, biases, and the matrices and biases of every activation.

    An activation inside another one of the same layer is a term of its own, which flows into the other.

    Args:
        layer: `x'_{i+1}`, a vector.
        x: `x'_i`.
        relations: relations between its parameters, which are applied first.

    Raises:
        SymbolicError: if the stream or an activation multiplies something else that moves, so that it has to be held.

    Source: Wang & Li, Eq. 20 and 28–31.
    """
    whole = collect(layer, x, relations)
    visited: list[_Inside] = []
    outer = {_visit(term.activation, x, visited): term.outer for term in whole.terms}
    couplings = tuple((t, r) for t, inside in enumerate(visited, 1) for r in sorted(inside.couplings))
    names = tuple(inside.activation.function for inside in visited)
    stack = ResidualStack(
        x.shape[0],
        tuple(inside.activation.shape[0] for inside in visited),
        names if set(names) - {"σ"} else (),
        couplings,
        tuple(sorted({inside.activation.function for inside in visited if inside.activation.indices})),
    )
    k = i + 1
    table: list[tuple[Parameter, MatrixExpr]] = [(stack.W(k, 1), whole.path), (stack.b(k, 3), whole.offset)]
    for t, inside in enumerate(visited, 1):
        width = (x.shape[0], inside.activation.shape[0])
        table += [
            (stack.W(k, 2, t), inside.inner),
            (stack.b(k, 2, t), inside.bias),
            (stack.W(k, 3, t), outer.get(t, ZeroMatrix(*width))),
            *((stack.coupling(k, t, r), inside.couplings[r]) for r in stack.earlier(t)),
        ]
    return Reading(stack, tuple(Definition(left, factored(right), (i,)) for left, right in table))
