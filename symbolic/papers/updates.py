"""Update rules as printed: assignments that reuse one symbol for a parameter before and after, run as a program."""

from collections.abc import Iterable
from typing import NamedTuple

from sympy import MatrixExpr

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import normal_form
from symbolic.expressions.activation import Activation
from symbolic.expressions.matrix import MatrixSum
from symbolic.expressions.parameter import Parameter
from symbolic.papers.counterexample import Outcome, identity
from symbolic.theorems.residual_stack import ResidualStack, i

DEPTHS = (1, 2, 3, 4)


class Assignment(NamedTuple):
    """`target ← value`, both in symbols that the program changes.

    Args:
        target: what is set.
        value: to what.
    """

    target: Parameter
    value: MatrixExpr


def in_order(assignments: Iterable[Assignment]) -> dict[Parameter, MatrixExpr]:
    """Run assignments one after the other: each uses what was set before.

    Args:
        assignments: in order.
    """
    state: dict[Parameter, MatrixExpr] = {}
    for target, value in assignments:
        state[target] = value.xreplace(state)
    return state


def all_at_once(assignments: Iterable[Assignment]) -> dict[Parameter, MatrixExpr]:
    """Run assignments with the original values on every right side.

    Args:
        assignments: in any order.
    """
    return dict(assignments)


def paper_layer(stack: ResidualStack) -> Definition:
    """Return Eq. 30, with the MLP's own `W'_{i+1,2}`.

    Args:
        stack: the symbols.
    """
    s, k = stack, i + 1
    y = s.W(k, 1) * s.x(i)
    return Definition(s.x(k), y + s.W(k, 3) * Activation(s.W(k, 2) * y + s.b(k, 2)) + s.b(k, 3), (i,))


def folded(stack: ResidualStack, depth: int, first: int = 1) -> list[Assignment]:
    """Return `W'_{k,2} ← W'_{k,2} W'_{k,1}` for all layers (below Eq. 30).

    Args:
        stack: the symbols.
        depth: number of layers.
        first: the first layer.
    """
    return [Assignment(stack.W(k, 2), stack.W(k, 2) * stack.W(k, 1)) for k in range(first, depth + 1)]


def layer_updates(stack: ResidualStack, j: int) -> list[Assignment]:
    """Return the four updates below Eq. 11 and Eq. 33 for one j, in the printed order.

    Args:
        stack: the symbols.
        j: the layer.
    """
    s = stack
    return [
        Assignment(s.W(j + 1, 1), s.W(j + 1, 1) * s.W(j, 1)),
        Assignment(s.b(j + 1, 3), s.W(j + 1, 1) * s.b(j, 3) + s.b(j + 1, 3)),
        Assignment(s.W(j + 1, 2), s.W(j + 1, 2) * s.W(j, 1)),
        Assignment(s.W(j, 3), s.W(j + 1, 1) * s.W(j, 3)),
    ]


def bias_updates(stack: ResidualStack, depth: int) -> list[Assignment]:
    """Return Eq. 12 (Eq. 34) for j = 2, …, depth.

    Args:
        stack: the symbols.
        depth: number of layers.
    """
    s = stack
    updates = []
    for j in range(2, depth + 1):
        terms = [s.W(k, 3) * Activation(s.W(k, 2) * s.x(0) + s.b(k, 2)) for k in range(1, j)]
        updates.append(Assignment(s.b(j, 2), s.W(j, 2) * s.b(j - 1, 3) + s.b(j, 2) + s.W(j, 2) * MatrixSum(*terms)))
    return updates


def closed_form(stack: ResidualStack, depth: int) -> MatrixExpr:
    """Return the right side of Eq. 33 (Eq. 11 with `b'_{i+1,3}`) at a depth.

    Args:
        stack: the symbols.
        depth: number of layers.
    """
    s = stack
    terms = [s.W(j, 3) * Activation(s.W(j, 2) * s.x(0) + s.b(j, 2)) for j in range(1, depth + 1)]
    return s.W(depth, 1) * s.x(0) + s.b(depth, 3) + MatrixSum(*terms)


def _run(stack: ResidualStack, depth: int, reading: str) -> dict[Parameter, MatrixExpr]:
    once = [a for j in range(1, depth) for a in layer_updates(stack, j)]
    biases = bias_updates(stack, depth)
    match reading:
        case "in order":
            return in_order([*folded(stack, 1), *once, *biases])
        case "at once":
            return all_at_once([*folded(stack, 1), *once, *biases])
        case "folded, at once":
            fold = dict(folded(stack, depth))
            return fold | {target: value.xreplace(fold) for target, value in [*once, *biases]}
        case "folded, in order":
            return in_order([*folded(stack, depth), *once, *biases])
        case "own and updated":
            return _own_and_updated(stack, depth)
        case "per layer":
            return per_layer(stack, depth)
        case _:
            repeated = [a for i_ in range(1, depth) for j in range(1, i_ + 1) for a in layer_updates(stack, j)]
            return in_order([*folded(stack, depth), *repeated, *biases])


def _own_and_updated(stack: ResidualStack, depth: int) -> dict[Parameter, MatrixExpr]:
    """Run the updates with layer j + 1's symbols as its own and layer j's as updated, on the right side."""
    s, fold = stack, dict(folded(stack, depth))
    state = dict(fold)
    for j in range(1, depth):
        updated = {p: state.get(p, p) for p in (s.W(j, 1), s.b(j, 3))}
        for target, value in layer_updates(s, j):
            state[target] = value.xreplace({**fold, **updated})
    for target, value in bias_updates(s, depth):
        j = int(target.lower[0])
        carried = {p: state.get(p, p) for p in (s.b(j - 1, 3), *(s.b(k, 2) for k in range(1, j)))}
        inner = {s.W(k, 2): state[s.W(k, 2)] for k in range(1, j)}
        state[target] = value.xreplace({**fold, **inner, **carried})
    return state


def per_layer(stack: ResidualStack, depth: int) -> dict[Parameter, MatrixExpr]:
    """Run the corrected rules: for every new layer i + 1, `W'_{j,3} ← W'_{i+1,1} W'_{j,3}` for all j ≤ i.

    On the right the new layer's symbols are its own, as they were folded, and all others are updated.

    Args:
        stack: the symbols.
        depth: number of layers.
    """
    s, own = stack, dict(folded(stack, depth))
    state = dict(own)
    for k in range(2, depth + 1):
        new = {s.W(k, 1): s.W(k, 1), s.W(k, 2): own[s.W(k, 2)], s.b(k, 2): s.b(k, 2), s.b(k, 3): s.b(k, 3)}
        known = {**state, **new}
        bias = bias_updates(s, k)[-1].value.xreplace(known)
        updated = {target: value.xreplace(known) for target, value in layer_updates(s, k - 1)[:3]}
        carried = {s.W(j, 3): s.W(k, 1) * state.get(s.W(j, 3), s.W(j, 3)) for j in range(1, k)}
        state |= {**updated, s.b(k, 2): bias, **carried}
    return state


READINGS = {
    "in order": "each update uses what was set before",
    "at once": "every right side has the original values",
    "folded, in order": "W'_{k,2} W'_{k,1} folded in all layers first, then in order",
    "folded, at once": "W'_{k,2} W'_{k,1} folded in all layers first, then original values on every right side",
    "own and updated": "right sides original, left sides transformed, as the caption of Figure 2 says: layer j + 1's"
    " own, layer j's updated",
    "repeated": "all updates repeated for every new layer, in order",
}


def reach(reading: str, stack: ResidualStack | None = None) -> Outcome:
    """Decide up to which depth a reading of the update rules reproduces the network of Eq. 30.

    Args:
        reading: a key of `READINGS`, or `per layer` for the corrected rules.
        stack: the symbols.
    """
    s = stack or ResidualStack()
    layer = paper_layer(s)
    for depth in DEPTHS:
        form = closed_form(s, depth).xreplace(_run(s, depth, reading))
        if normal_form(form) != normal_form(s.x(depth), [layer]):
            failure = identity(s.x(depth), form, [layer])
            return Outcome(False, f"right up to depth {depth - 1}, wrong at depth {depth} ({failure.how})")
    return Outcome(True, f"right at depths {DEPTHS[0]} to {DEPTHS[-1]}")
