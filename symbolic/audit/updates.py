"""Run the printed update rules as a program: assignments that reuse a symbol for a parameter before and after."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sympy import Expr, MatrixExpr, Symbol

from symbolic.audit.checks import at_depths, expect
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.letters import Statement
from symbolic.audit.notation import THEORY, S
from symbolic.audit.table import rows
from symbolic.equality.definition import Definition
from symbolic.expressions.activation import Activation
from symbolic.expressions.ordered_product import written_out
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import i, j

DEPTHS = (1, 2, 3, 4)

State = dict[Parameter, MatrixExpr]


class Assignment(NamedTuple):
    """`target ← value`, both in symbols that the program changes.

    Args:
        target: the parameter that is set.
        value: its new value.
    """

    target: Parameter
    value: MatrixExpr


def assignments(statements: Iterable[Statement]) -> list[Assignment]:
    """Return the printed equations that set a parameter of a layer, in their order."""
    letters = ("W'", "b'", "UAT")
    return [Assignment(*s.equated) for s in statements if getattr(s.sides[0], "letter", "") in letters]


def in_order(steps: Iterable[Assignment]) -> State:
    """Run assignments one after the other: each uses what was set before."""
    state: State = {}
    for target, value in steps:
        state[target] = value.xreplace(state)
    return state


def all_at_once(steps: Iterable[Assignment]) -> State:
    """Run assignments with the original values on every right side."""
    return dict(steps)


def updated(layer: Any) -> Callable[[Parameter], MatrixExpr]:
    """Return a rule that replaces the papers' letters for updated parameters by those of the closed form."""

    def rule(p: Parameter) -> MatrixExpr:
        if p.letter == "ΔW'" or p.letter not in ("W'", "b'"):
            return p
        k, role = p.lower
        kinds = {1: S.P, 2: S.B, 3: lambda k: S.C(k, layer)} if p.letter == "W'" else {1: S.q, 2: S.c, 3: S.q}
        return kinds[int(role)](k)

    return rule


def paper_layer() -> Definition:
    """Return Eq. 30, with the MLP's own `W'_{i+1,2}`."""
    k = i + 1
    y = S.W(k, 1) * S.x(i)
    return Definition(S.x(k), y + S.W(k, 3) * Activation(S.W(k, 2) * y + S.b(k, 2)) + S.b(k, 3), (i,))


def fold(depth: int) -> State:
    """Return `W'_{k,2} ← W'_{k,2} W'_{k,1}` for all layers (below Eq. 30)."""
    return {S.W(k, 2): S.W(k, 2) * S.W(k, 1) for k in range(1, depth + 1)}


def paper_recursions() -> tuple[Definition, ...]:
    """Return the recursions of Eq. 30, in which `W'_{i+1,2}` meets `W'_{i+1,1}`."""
    folded = {S.W(i + 1, 2): S.W(i + 1, 2) * S.W(i + 1, 1)}
    return tuple(replace(rule, right=rule.right.xreplace(folded)) for rule in S.recursions)


class Rules(NamedTuple):
    """The printed update rules, read.

    Args:
        start: the settings of the first layer.
        first: the first value of j.
        last: the last value of j, in i.
        each: the settings for every j.
        bias: Eq. 12 (Eq. 34), for j = 2, …, depth.
        form: Eq. 33 (Eq. 11), at layer i + 1.
    """

    start: list[Assignment]
    first: Expr
    last: Expr
    each: list[Assignment]
    bias: Assignment
    form: MatrixExpr

    def once(self, depth: int) -> list[Assignment]:
        """Return the updates of one pass over j, for a number of layers."""
        return [self.at_layer(a, k) for k in self.values(depth - 1) for a in self.each]

    def values(self, layer: int) -> Iterable[int]:
        """Return the values of j."""
        return range(int(self.first), int(self.last.subs(i, layer)) + 1)

    @staticmethod
    def at_layer(step: Assignment, k: int) -> Assignment:
        """Return an update for one j."""
        return Assignment(step.target.xreplace({j: k}), written_out(step.value, {j: k}))

    def biases(self, depth: int) -> list[Assignment]:
        """Return the updates of the biases."""
        return [self.at_layer(self.bias, k) for k in range(2, depth + 1)]


def rules_as_printed(statements: Sequence[Statement]) -> Rules:
    """Return printed update rules: `i = 0` with its settings, then `j = 1, …, i` with theirs; and Eq. 12 and 33."""
    # In the corrected rules it is `i ≥ 0`, and `i ≥ 1` stands before those that hold once for every new layer.
    tables = (rows()["000", equation] for equation in ("12", "33"))
    (bias,), (form,) = (read(fields["printed"], THEORY, fields["unprimed"]) for fields in tables)
    places = [k for k, s in enumerate(statements) if isinstance(s.sides[0], Symbol) and s.relations]
    conditions = [statements[k] for k in places]
    first, every = Statement((i, 0), ("=",)), Statement((j, 1), ("=",))
    each_layer, later = (Statement((i, k), (r"\ge",)) for k in (0, 1))
    opening, *middle, closing = conditions
    known = opening in (first, each_layer) and middle in ([], [later]) and closing == every
    expect(known, "rules for i = 0, then for every j from 1 on")
    dots, last = (s.sides[0] for s in statements[places[-1] + 1 : places[-1] + 3])
    expect(dots == Symbol("..."), "a range j = 1, …, i")
    start, each = (assignments(part) for part in (statements[: places[1]], statements[places[1] :]))
    if opening == first:
        start = [Assignment(target.xreplace({i: 0}), value.xreplace({i: 0})) for target, value in start]
    return Rules(start, every.sides[1], last, each, Assignment(*bias.equated), form.equated[1])


def closed_form(form: MatrixExpr, depth: int) -> MatrixExpr:
    """Return the printed Eq. 33 (Eq. 11, whose `b_{i+1,1}` no rule sets, with `b'_{i+1,3}`) at a depth."""
    value = written_out(form, {i: depth - 1})
    return value.xreplace({p: S.b(depth, 3) for p in value.atoms(Parameter) if p.letter == "b'" and p.lower[1] == 1})


def _run(rules: Rules, depth: int, reading: str) -> State:
    once, biases, folded = rules.once(depth), rules.biases(depth), fold(depth)
    folds = [Assignment(*pair) for pair in folded.items()]
    match reading:
        case "in order":
            return in_order([*rules.start, *once, *biases])
        case "at once":
            return all_at_once([*rules.start, *once, *biases])
        case "folded, at once":
            return folded | {target: value.xreplace(folded) for target, value in [*once, *biases]}
        case "folded, in order":
            return in_order([*folds, *once, *biases])
        case "own and updated":
            return _own_and_updated(rules, depth)
    repeated = [a for k in range(2, depth + 1) for a in rules.once(k)]
    return in_order([*folds, *repeated, *biases])


def _own_and_updated(rules: Rules, depth: int) -> State:
    """Run the updates with layer j + 1's symbols as its own and layer j's as updated, on the right side."""
    folded = fold(depth)
    state = dict(folded)
    for k in range(1, depth):
        known = {p: state.get(p, p) for p in (S.W(k, 1), S.b(k, 3))}
        for target, value in (rules.at_layer(a, k) for a in rules.each):
            state[target] = value.xreplace({**folded, **known})
    for target, value in rules.biases(depth):
        k = int(target.lower[0])
        carried = {p: state.get(p, p) for p in (S.b(k - 1, 3), *(S.b(m, 2) for m in range(1, k)))}
        inner = {S.W(m, 2): state[S.W(m, 2)] for m in range(1, k)}
        state[target] = value.xreplace({**folded, **inner, **carried})
    return state


def _per_layer(rules: Rules, depth: int) -> State:
    """Run the corrected rules: those in i once for every new layer i + 1, those in j for all j ≤ i."""
    # On the right the new layer's symbols are its own, `W'_{i+1,2}` folded, and all others are updated.
    state: State = {}
    for layer in range(depth):
        new, number = layer + 1, {i: layer}
        own = {p: p for p in (S.W(new, 1), S.b(new, 2), S.b(new, 3))}
        own |= {target.xreplace(number): value.xreplace(number) for target, value in rules.start}
        known, new_values = {**state, **own}, {}
        for step in rules.each if layer else ():
            for k in rules.values(layer) if step.target.has(j) else (layer,):
                target, value = rules.at_layer(step, k)
                new_values[target.xreplace(number)] = value.xreplace(number).xreplace(known)
        if layer:
            target, value = rules.at_layer(rules.bias, new)
            new_values[target] = value.xreplace(known)
        state |= {**own, **new_values}
    return state


READINGS = ("in order", "at once", "folded, in order", "folded, at once", "own and updated", "repeated")
"""The readings of the update rules, in the order of their words in the table: the first is as printed."""


def reach(statements: Sequence[Statement], reading: str) -> Outcome:
    """Decide up to which depth a reading of the update rules reproduces the network of Eq. 30."""
    rules = rules_as_printed(statements)
    layer = paper_layer()

    def decide(depth: int) -> Outcome:
        state = _per_layer(rules, depth) if reading == "per layer" else _run(rules, depth, reading)
        return identity(S.x(depth), closed_form(rules.form, depth).xreplace(state), [layer])

    return at_depths(decide, DEPTHS)
