"""Carry LoRA updates exactly through the recursions, with the part of first order in the adapters separated."""

from collections.abc import Callable
from typing import NamedTuple

from sympy import Identity, MatrixExpr, Transpose, ZeroMatrix, symbols
from sympy.matrices.expressions import MatAdd, MatMul

from symbolic.equality.definition import Definition
from symbolic.equality.form import NormalForm
from symbolic.equality.linear_atoms import ParameterAtom
from symbolic.equality.normal_form import equal, normal_form
from symbolic.equality.two_inputs import change as delta
from symbolic.equality.word import Word
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.matrix import MatrixProduct, MatrixSum
from symbolic.expressions.operations import Diagonal, Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import HELD
from symbolic.proof.step import Step, equality, equations, let, let_each
from symbolic.theorems.closed_form import prove
from symbolic.theorems.residual_stack import ResidualStack, check_depth, i


class AdaptedStack(ResidualStack):
    """The same stack with every matrix `W'_{k,m}` replaced by `W'_{k,m} + ΔW'_{k,m}`."""

    def W(self, k: object, role: int, term: int = 1) -> MatrixExpr:
        """Return the adapted matrix."""
        plain = super().W(k, role, term)
        return plain + delta(plain)


def first_order(expression: MatrixExpr, change: Callable[[Parameter], MatrixExpr | None]) -> MatrixExpr:
    """Return the part of an expression's change that is of first order: its formal differential.

    Example:
        >>> stack = ResidualStack()
        >>> def change(p):
        ...     return delta(p) if p.letter == "W'" else None
        >>> print(first_order(stack.W(2, 1) * stack.W(1, 1), change))
        ΔW′₂,₁ W′₁,₁ + W′₂,₁ ΔW′₁,₁
    """
    # `d(A B) = dA B + A dB`, `d σ(z) = diag(σ'(z)) dz`.
    zero = ZeroMatrix(*expression.shape)
    match expression:
        case Parameter():
            return change(expression) or zero
        case Identity() | ZeroMatrix():
            return zero
        case MatAdd():
            return MatrixSum(*(first_order(summand, change) for summand in expression.args))
        case MatMul():
            coefficient, factors = expression.as_coeff_matrices()
            changed = [
                MatrixProduct(coefficient, *factors[:k], first_order(factor, change), *factors[k + 1 :])
                for k, factor in enumerate(factors)
            ]
            return MatrixSum(*changed)
        case Activation() if expression.order == 0:
            slope = Activation(expression.argument, 1, expression.function)
            return Diagonal(slope) * first_order(expression.argument, change)
        case Transpose():
            return Transpose(first_order(expression.arg, change))
        case IndexedSum():
            return IndexedSum(first_order(expression.body, change), *expression.args[1:])
    raise SymbolicError(f"{expression} ({type(expression).__name__}) has no differential here")


_MOVED = ("W'", "P", "q", "B", "c", "C", "UAT", "s", "z")


def _change(parameter: Parameter) -> MatrixExpr | None:
    return delta(parameter) if parameter.letter in _MOVED else None


def _adapted(expression: MatrixExpr) -> MatrixExpr:
    """Return an expression with every `X` that the adapters move replaced by `X + ΔX`."""
    moved = {p: p + delta(p) for p in expression.atoms(Parameter) if p.letter in _MOVED}
    return expression.xreplace(moved)


def _degree(word: Word) -> int:
    return sum(isinstance(atom, ParameterAtom) and atom.parameter.letter.startswith("Δ") for atom in word.atoms)


class Change(NamedTuple):
    """The exact change of one parameter by the adapters, in two parts.

    Args:
        left: the parameter's change `ΔX`.
        first: its part of first order in the changes.
        higher: the rest, products of two or more changes.
    """

    left: Parameter
    first: MatrixExpr
    higher: MatrixExpr


def change_of(rule: Definition) -> Change:
    """Return the exact change of a recursion's parameter, `(recursion with X + ΔX) − recursion`, sorted by order."""
    words = normal_form(_adapted(rule.right) - rule.right).words
    parts = [[(w, c) for w, c in words.items() if (_degree(w) == 1) == first] for first in (True, False)]
    first, higher = (NormalForm(rule.right.shape, part).expression() for part in parts)
    return Change(delta(rule.left), first, higher)


def lora(stack: ResidualStack | None = None, depth: int = 3) -> Derivation:
    """Carry LoRA updates of all three matrices of every layer through the recursions, exactly.

    Example:
        >>> lora().verified
        True
    """
    # For every parameter of the unrolled form the line of first order comes first and the exact one, with the products
    # of changes, after it. A parameter of a later layer moves even if only an earlier layer has an adapter.
    s, k, depth = stack or ResidualStack(), i + 1, check_depth(depth)
    m, tokens, rank = symbols("M N r", integer=True, positive=True)
    weight, down, up = Parameter("W", (), m, m), Parameter("L", (), m, rank), Parameter("R", (), rank, m)
    x = Variable("x", (), tokens, m)
    adapted, rules = AdaptedStack(s.width, s.neurons), s.recursions
    activation, pre_activation = Parameter("s", (k,), s.neurons, 1), Parameter("z", (k,), s.neurons, 1)
    zeros = tuple(Definition(delta(p), ZeroMatrix(*p.shape)) for p in (s.P(0), s.q(0), s.UAT(0)))
    start = Definition(s.UAT(0), ZeroMatrix(s.width, 1))
    named = Definition(activation, Activation(pre_activation), (i,))
    z = Definition(pre_activation, s.B(k) * s.x(0) + s.c(k), (i,))
    uat = Definition(s.UAT(k), s.W(k, 1) * s.UAT(i) + s.W(k, 3) * activation, (i,))
    changes: list[Step] = []
    differences: list[Definition] = []
    exact = [*zeros, start, z, uat]
    for rule in (*(r for r in rules if r.variables and r.left.letter != "UAT"), z, uat):
        change = change_of(rule)
        formal = equal(first_order(rule.right, _change), change.first)
        whole = change.first + change.higher
        difference = Definition(change.left, _adapted(rule.right) - rule.right)
        differences.append(difference)
        if change.higher.is_ZeroMatrix:
            changes.append(Step(change.left, whole, "exact", formal and equal(change.left, whole, (difference,))))
        else:
            changes.append(Step(change.left, change.first, "first order", formal, "≈"))
            changes.append(equality(change.left, whole, "exact", (difference,)))
        exact.append(Definition(change.left, whole, rule.variables, rule.where))
    moved = Activation(pre_activation + delta(pre_activation)) - Activation(pre_activation)
    slope = Diagonal(Activation(pre_activation, 1)) * delta(pre_activation)
    changes.append(
        Step(
            delta(activation), slope, "first order", equal(first_order(Activation(pre_activation), _change), slope), "≈"
        )
    )
    changes.append(let(delta(activation), moved, "exact"))
    exact += [Definition(delta(activation), moved, (i,)), named]
    form = (
        (s.P(depth) + delta(s.P(depth))) * s.x(0) + s.q(depth) + delta(s.q(depth)) + s.UAT(depth) + delta(s.UAT(depth))
    )
    closed = normal_form(form, [*exact, *rules]) == normal_form(s.x(depth), [adapted.equation_20])
    given = [rule for rule in rules if rule.left.letter != "UAT"]
    steps = (
        equality(x * (weight + down * up), x * weight + x * (down * up), "Eq. 17: ΔW = L R of rank r, the papers' A B"),
        equality(
            Vec(x * (weight + down * up)),
            (Kronecker(Identity(tokens), weight.T) + Kronecker(Identity(tokens), (down * up).T)) * Vec(x),
            "so ΔW' = I_N ⊗ (L R)^T",
        ),
        let(s.x(k), adapted.general_term(k), "Eq. 20 with adapters in all three places"),
        Step(
            s.x(i),
            _adapted(s.form(i)),
            "by the same theorem, with W' + ΔW' for W' in the recursions",
            prove(adapted).verified,
            using=equations(given),
        ),
        *changes,
        Step(s.x(depth), form, f"against the adapted network at depth {depth}", closed),
    )
    adapters = (
        "An adapter changes a matrix W'_{i,k} by ΔW'_{i,k}, which may be zero, and no bias. Δ of another letter is its"
        " change; s_i is the activation of layer i, z_i its pre-activation. Where a held value moves with the adapters,"
        " that is part of ΔW'_{i,k}."
    )
    return Derivation(
        "LoRA, carried through every layer",
        steps,
        "Drop the lines marked exact to get the first order alone.",
        given=let_each(*given, z, named, start, uat, *zeros),
        premises=(HELD, adapters),
        known=equations(differences),
    )
