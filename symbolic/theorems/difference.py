"""Derive the difference form: how a stack's output changes between two inputs, and the share of each parameter."""

import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from typing import Any

from sympy import Identity, MatrixExpr, Rational, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import factored
from symbolic.equality.two_inputs import at_second_input, change, difference_of, mean_of, midpoint, moves, second_value
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Diagonal
from symbolic.expressions.parameter import Held, Ones, Parameter, Weight, parameters_replaced
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import NOTHING_HELD, residual_layers
from symbolic.proof.step import equality, equations, induction_hypothesis, let, suppose
from symbolic.theorems.residual_stack import ResidualStack, added, i, j

_RULES = (
    "a change before a layer, after it",
    "the effect of the layer's own changed parameters",
    "from a layer to itself",
    "and from layer j to one layer more, for j ≤ i",
)

_HELD = re.compile(r", held at those on this one| \(held\)")
_SECANTS = "let κ be the slopes of the secants of σ; such κ exist, since Δh is zero wherever Δz is"
_STEP = "step: by the change of one layer, the recursions and the induction hypothesis"


def _product(a: Parameter, b: MatrixExpr) -> MatrixExpr:
    """Return `ā Δb + Δa b̄`, which is `Δ(a b)`."""
    return midpoint(a) * change(b) + change(a) * midpoint(b)


@dataclass(frozen=True)
class TwoInputs:
    """The symbols of a stack at two inputs, and the recursions of its difference.

    `Δa = a − ã` is the change of anything, `ā = (a + ã)/2` its midpoint, where `ã` is what `a` is at the other input.

    Args:
        stack: the symbols at one input.
    """

    stack: ResidualStack

    def z(self, k: Any, term: int = 1) -> Parameter:
        """Return `z_k`, the pre-activation of a term of layer k."""
        return self.stack.vector("z", k, term)

    def h(self, k: Any, term: int = 1) -> Parameter:
        """Return `h_k`, its activation."""
        return self.stack.vector("h", k, term)

    def slope(self, k: Any, term: int = 1) -> Parameter:
        """Return `κ_k`, the slopes of the secants, `Δh_k = diag(κ_k) Δz_k`."""
        return self.stack.vector("kappa", k, term)

    def Psi(self, k: Any) -> Parameter:
        """Return `Ψ_k`, which carries `Δx'_{k−1}` through layer k."""
        return Parameter("Psi", (k,), self.stack.width, self.stack.width)

    def Phi(self, k: Any, layer: Any) -> Parameter:
        """Return `Φ_k^{(layer)}`, which carries a change from layer k to a later layer."""
        return Parameter("Phi", (k,), self.stack.width, self.stack.width, (layer,))

    def mu(self, k: Any) -> Parameter:
        """Return `μ_k`, the share of the changed parameters of layer k."""
        return Parameter("mu", (k,), self.stack.width, 1)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """A layer's own parameters, all of which may move."""
        k = i + 1
        return tuple(self.stack.general_term(k).atoms(Parameter) - {self.stack.x(i)})

    @property
    def values(self) -> tuple[Definition, ...]:
        """A layer at both inputs, step by step: pre-activations, activations, the stream."""
        s, k = self.stack, i + 1
        at_one = []
        for t in s.terms:
            couplings = (s.coupling(k, t, r) * self.h(k, r) for r in s.earlier(t))
            at_one.append((self.z(k, t), added(s.W(k, 2, t) * s.x(i) + s.b(k, 2, t), couplings)))
            at_one.append((self.h(k, t), s.activated(self.z(k, t), k, t)))
        terms = (s.W(k, 3, t) * self.h(k, t) for t in s.terms)
        at_one.append((s.x(k), added(s.W(k, 1) * s.x(i) + s.b(k, 3), terms)))
        return tuple(
            rule
            for left, right in at_one
            for rule in (Definition(left, right, (i,)), Definition(second_value(left), at_second_input(right), (i,)))
        )

    @property
    def moves(self) -> tuple[Definition, ...]:
        """Changes and midpoints of everything."""
        k = i + 1
        inside = [letter(k, t) for t in self.stack.terms for letter in (self.z, self.h)]
        return moves(self.stack.x(i), *self.parameters, *inside, variables=(i,))

    def moved_inside(self, k: Any, term: int) -> MatrixExpr:
        """Return `Δz_k` by the product rule."""
        s, x = self.stack, self.stack.x(k - 1)
        couplings = (_product(s.coupling(k, term, r), self.h(k, r)) for r in s.earlier(term))
        return added(_product(s.W(k, 2, term), x) + change(s.b(k, 2, term)), couplings)

    def moved_layer(self, k: Any) -> MatrixExpr:
        """Return `Δx'_k` by the product rule."""
        s = self.stack
        terms = (_product(s.W(k, 3, t), self.h(k, t)) for t in s.terms)
        return added(_product(s.W(k, 1), s.x(k - 1)) + change(s.b(k, 3)), terms)

    def _through(self, k: Any, term: int) -> MatrixExpr:
        """Return the matrix that multiplies `Δx'_{k−1}` in `Δh_k`, through earlier terms of its layer too."""
        s = self.stack
        before = (midpoint(s.coupling(k, term, r)) * self._through(k, r) for r in s.earlier(term))
        return Diagonal(self.slope(k, term)) * added(midpoint(s.W(k, 2, term)), before)

    def _brought(self, k: Any, term: int) -> MatrixExpr:
        """Return the share of changed parameters in `Δh_k`."""
        s = self.stack
        moved = change(s.W(k, 2, term)) * midpoint(s.x(k - 1)) + change(s.b(k, 2, term))
        before = (
            change(c) * midpoint(self.h(k, r)) + midpoint(c) * self._brought(k, r)
            for r, c in ((r, s.coupling(k, term, r)) for r in s.earlier(term))
        )
        return Diagonal(self.slope(k, term)) * added(moved, before)

    @property
    def recursions(self) -> tuple[Definition, ...]:
        """The recursions of `Ψ`, `μ` and `Φ`."""
        s, k = self.stack, i + 1
        through = (midpoint(s.W(k, 3, t)) * self._through(k, t) for t in s.terms)
        moved = change(s.W(k, 1)) * midpoint(s.x(i)) + change(s.b(k, 3))
        brought = (
            change(s.W(k, 3, t)) * midpoint(self.h(k, t)) + midpoint(s.W(k, 3, t)) * self._brought(k, t)
            for t in s.terms
        )
        return (
            Definition(self.Psi(k), added(midpoint(s.W(k, 1)), through), (i,)),
            Definition(self.mu(k), added(moved, brought), (i,)),
            Definition(self.Phi(i, i), Identity(s.width), (i,)),
            Definition(self.Phi(j, k), self.Psi(k) * self.Phi(j, i), (i, j), ((j, i),)),
        )

    def unrolled(self, layer: Any) -> MatrixExpr:
        """Return `Φ_0^{(i)} Δx'_0 + Σ_j Φ_j^{(i)} μ_j`: the share of the input and that of each layer's parameters."""
        parameters = IndexedSum(self.Phi(j, layer) * self.mu(j), j, 1, layer)
        return self.Phi(0, layer) * change(self.stack.x(0)) + parameters


def difference(stack: ResidualStack | None = None) -> Derivation:
    """Derive `Δx'_i = Φ_0^{(i)} Δx'_0 + Σ_{j≤i} Φ_j^{(i)} μ_j` for every depth, by induction.

    Example:
        >>> print(difference().verdict)
        9 of 9 checks hold, by induction, with 9 definitions and 1 assumption
    """
    # `Δa = a − ã` is the difference of anything between two inputs, `ā = (a + ã)/2` its midpoint. A layer carries `Δx'`
    # through `Ψ_i = W̄'_{i,1} + W̄'_{i,3} diag(κ_i) W̄'_{i,2}`, with the slopes `κ_i` of the secants, and adds `μ_i`:
    # the changes of its parameters, applied to midpoints. Nothing is held: a parameter may be any other at the other
    # input.
    s, k = stack or ResidualStack(), i + 1
    form = TwoInputs(s)
    x, x0 = s.x(i), s.x(0)
    values, moved, rules = form.values, form.moves, form.recursions
    product = s.W(k, 1) * x
    inside = [Definition(change(form.z(k, t)), form.moved_inside(k, t)) for t in s.terms]
    secants = [Definition(change(form.h(k, t)), Diagonal(form.slope(k, t)) * change(form.z(k, t))) for t in s.terms]
    layer = Definition(change(s.x(k)), form.moved_layer(k))
    carried = Definition(change(s.x(k)), form.Psi(k) * change(x) + form.mu(k))
    hypothesis = Definition(change(x), form.unrolled(i))
    still = [Definition(change(p), ZeroMatrix(*p.shape)) for p in form.parameters]
    steps = [
        *(
            let(rule.left, rule.right, "at one input, and likewise at the other", (other,))
            for rule, other in zip(values[::2], values[1::2], strict=True)
        ),
        equality(s.x(k), s.general_term(k), "the definitions together are Eq. 20", values),
        equality(
            second_value(s.x(k)),
            at_second_input(s.general_term(k)),
            "and so at the other input, where every parameter may be another one",
            values,
        ),
        let(change(x), difference_of(x), "likewise for every other letter", moved[: len(moved) // 2]),
        let(midpoint(x), mean_of(x), "likewise for every other letter", moved[len(moved) // 2 :]),
        equality(difference_of(product), _product(s.W(k, 1), x), "the change of a product has two parts", moved),
        *(
            equality(rule.left, rule.right, "and so has the change of a pre-activation", (*moved, *values))
            for rule in inside
        ),
        *(suppose(rule.left, rule.right, _SECANTS) for rule in secants),
        equality(
            layer.left, layer.right, "subtract Eq. 20 at the other input from Eq. 20 at this one", (*moved, *values)
        ),
        *(let(rule.left, rule.right, name) for rule, name in zip(rules, _RULES, strict=True)),
        equality(carried.left, carried.right, "by the secants and the definitions", (layer, *secants, *inside, *rules)),
        equality(change(x0), form.unrolled(0), "base: by the recursions, with an empty sum", rules),
        induction_hypothesis(hypothesis.left, hypothesis.right),
        equality(change(s.x(k)), form.unrolled(k), _STEP, (hypothesis, carried, *rules)),
        equality(form.mu(k), ZeroMatrix(s.width, 1), "constant parameters have no effect", (*rules, *still)),
    ]
    return Derivation(
        "The difference of two inputs",
        tuple(steps),
        "The first summand is the effect of the changed input, the sum that of the changed parameters of every layer."
        " Where an entry of z doesn't change, any slope will do; the limit is the derivative.",
        premises=(residual_layers(s.equation_20), NOTHING_HELD),
    )


def _with(entry: Definition, moving: Set[Parameter], put: Callable[[Parameter], MatrixExpr]) -> MatrixExpr:
    """Return a parameter of a block with something else in the place of what moves in it."""
    return parameters_replaced(entry.right, lambda a: put(a) if a in moving else a)


def _in_changes(entry: Definition, moving: Set[Parameter]) -> tuple[MatrixExpr, MatrixExpr]:
    """Return a parameter's change and midpoint in those of what moves in it, `a = ā + Δa/2` and `ã = ā − Δa/2`."""
    half = Rational(1, 2)
    at_one = _with(entry, moving, lambda a: midpoint(a) + half * change(a))
    at_other = _with(entry, moving, lambda a: midpoint(a) - half * change(a))
    return factored(at_one - at_other), factored(half * (at_one + at_other))


def at_other_input(equation: Definition) -> Definition:
    """Return an equation of a block as it is at the other input, where weights are the same."""

    def put(parameter: Parameter) -> Parameter:
        same = isinstance(parameter, Ones | Weight)
        return parameter if same else second_value(parameter)

    left, right = (parameters_replaced(side, put) for side in (equation.left, equation.right))
    return Definition(left, right, equation.variables, equation.where)


def with_moving_parameters(
    derivation: Derivation, parameters: Iterable[Definition], layer: Iterable[Definition]
) -> Derivation:
    """Return the difference form of a block: first how its parameters move with what is held in them."""
    midpoints, changes, constants, read_off = [], [], [], []
    put_in: dict[Parameter, MatrixExpr] = {}
    known, moving = list(map(at_other_input, layer)), set[Parameter]()
    for entry in parameters:
        inside = {a for a in entry.right.atoms(Parameter) if isinstance(a, Held) or a in moving}
        moved, middle = _in_changes(entry, inside)
        there = Definition(second_value(entry.left), _with(entry, inside, second_value), entry.variables)
        rules = (*moves(entry.left, *inside), entry, there)
        read_off.append(let(entry.left, entry.right, "at one input, and likewise at the other", (there,)))
        known += rules
        midpoints.append(equality(midpoint(entry.left), middle, "the parameters have these midpoints", rules))
        if inside:
            moving.add(entry.left)
            changes.append(equality(change(entry.left), moved, "they change with what depends on the input", rules))
        else:
            put_in |= {change(entry.left): moved}
            put_in |= dict.fromkeys((midpoint(entry.left), second_value(entry.left)), entry.left)
            constants.append(equality(change(entry.left), moved, "and the change of a constant is zero", rules))

    theorem = derivation.with_parameters(lambda parameter: put_in.get(parameter, parameter))
    words = {letter: _HELD.sub("", meaning) for letter, meaning in theorem.words.items()}
    steps, given = (*midpoints, *changes, *constants, *theorem.steps), (*theorem.given, *read_off)
    return replace(theorem, steps=steps, given=given, known=equations(known), words=words)
