"""Identities and what looks like one: each true one is shown or undecided, as stated; no wrong one is shown."""

import random
from fractions import Fraction

import pytest
from identities import TRUE, UNDECIDED, WRONG, M, N, P, i, j, k, m, n, s, sigma, t, total
from sympy import Identity, ImmutableMatrix, Integer, MatAdd, Rational, ZeroMatrix

from symbolic.equality.normal_form import equal, normal_form
from symbolic.evaluation.interpreter import Interpreter, exact
from symbolic.expressions.activation import Activation
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.hadamard import Hadamard
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.parameter import Parameter
from symbolic.expressions.vec import Vec


def numbers(seed):
    """Return small numbers for all sizes, indices and bounds."""
    rng = random.Random(seed)
    sizes = {N: 2, M: rng.choice((1, 3)), P: 2}
    whole = {index: rng.randint(0, 3) for index in (n, m, i, j, k)}
    return {symbol: Integer(x) for symbol, x in (sizes | whole | {t: rng.randint(1, 3), s: rng.randint(-3, 2)}).items()}


def sample(parameter, seed):
    """Return a matrix of rational numbers that depends on the parameter's name and a seed."""
    rng = random.Random(f"{parameter} {parameter.shape} {seed}")
    return ImmutableMatrix(*map(int, parameter.shape), lambda *_: Fraction(rng.randint(-3, 3), rng.choice((1, 2))))


ARITHMETIC = exact(lambda x: x**3 - 2 * x + 1, lambda x: 3 * x**2 - 2)
NAMED = ARITHMETIC.__class__(**{**vars(ARITHMETIC), "activations": {
    "σ": ARITHMETIC.activations, "τ": ARITHMETIC.activations[::-1],
}})  # fmt: skip


def value(expression, seed):
    """Return the exact value of an expression at the numbers of a seed."""
    return Interpreter(lambda parameter: sample(parameter, seed), NAMED).value(expression.xreplace(numbers(seed)))


@pytest.mark.parametrize("name", TRUE)
def test_true_and_shown(name):
    left, right = TRUE[name]
    assert equal(left, right) and equal(right, left)


@pytest.mark.parametrize("name", UNDECIDED)
def test_true_and_undecided(name):
    *sides, reason = UNDECIDED[name]
    assert not equal(*sides), "it is shown by now: move it to the others"
    assert reason


@pytest.mark.parametrize("name", [*TRUE, *UNDECIDED])
def test_true_at_numbers(name):
    left, right, *_ = (TRUE | UNDECIDED)[name]
    assert all(value(left, seed) == value(right, seed) for seed in range(4))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_and_never_shown(name):
    left, right = WRONG[name]
    assert not equal(left, right) and not equal(right, left)
    assert any(value(left, seed) != value(right, seed) for seed in range(12)), "no numbers refute it"


def test_the_tables_are_long_enough_to_mean_something():
    assert len(TRUE) >= 62 and len(WRONG) >= 60


SHAPES = ((2, 2), (2, 1), (1, 2), (1, 1), (4, 1))


def random_expression(rng, shape, depth):
    """Return a random expression of numeric shape, of few letters, so that two of them are often equal."""
    rows, columns = shape

    def part(*inner):
        return random_expression(rng, inner, depth - 1)

    if depth == 0:
        index = (rng.choice((1, 2)),) if rng.random() < 0.3 else ()
        return Parameter(rng.choice("ab") + f"{rows}{columns}", index, rows, columns)
    match rng.choice(("sum", "product", "transpose", "scale", "hadamard", "activation", "vec", "kronecker", "indexed")):
        case "sum":
            return part(rows, columns) + part(rows, columns)
        case "transpose":
            return part(columns, rows).T
        case "scale":
            return Rational(rng.choice((-1, 1, 2)), 2) * part(rows, columns)
        case "hadamard" if columns == 1 and rng.random() < 0.5:
            return Diagonal(part(rows, 1)) * part(rows, 1)
        case "hadamard":
            return Hadamard(part(rows, columns), part(rows, columns))
        case "activation":
            return sigma(part(rows, columns))
        case "vec" if columns == 1:
            return Vec(part(*((2, 2) if rows == 4 else (1, rows))))
        case "kronecker" if rows == 4:
            return (
                Kronecker(part(2, 1), part(2, columns))
                if rng.random() < 0.5
                else Kronecker(part(2, 2), part(2, 2)) * part(4, columns)
            )
        case "kronecker":
            return Kronecker(part(1, 1), part(rows, columns))
        case "indexed":
            summand = part(rows, columns)
            moving = sorted(summand.atoms(Parameter), key=str)[0]
            moved = Parameter(moving.letter, (j,), *moving.shape)
            return total(
                summand.xreplace({moving: moved}), j, *rng.choice(((1, 2), (1, n), (1, n + 1), (2, n + 1), (0, n)))
            )
    inner = rng.choice((1, 2))
    return part(rows, inner) * part(inner, columns)


def rewritten(rng, e):
    """Return an expression rewritten by one true rule somewhere in it."""
    if e.args and rng.random() < 0.7 and not isinstance(e, Parameter | IndexedSum):
        places = [p for p, part in enumerate(e.args) if hasattr(part, "shape")]
        if places:
            place = rng.choice(places)
            return e.func(*(rewritten(rng, part) if p == place else part for p, part in enumerate(e.args)))
    rows, columns = e.shape
    rules = [lambda: e.T.T, lambda: e + e - e, lambda: Identity(rows) * e, lambda: Kronecker(e, Identity(1))]
    match e:
        case Hadamard():
            rules += [lambda: Hadamard(*e.args[::-1]), lambda: Hadamard(*(part.T for part in e.args)).T]
        case Vec():
            rules += [lambda: sum((Vec(part) for part in e.matrix.args), ZeroMatrix(rows, 1))] * (
                isinstance(e.matrix, MatAdd)
            )
        case Activation():
            rules += [lambda: sigma(e.argument.T).T]
        case Kronecker():
            (a, b), (c, d) = e.args[0].shape, e.args[1].shape
            rules += [
                lambda: Kronecker(e.args[0], Identity(c)) * Kronecker(Identity(b), e.args[1]),
                lambda: Kronecker(Identity(a), e.args[1]) * Kronecker(e.args[0], Identity(d)),
            ]
        case Parameter() if columns == 1:
            rules += [lambda: Vec(e), lambda: Diagonal(e) * sigma(e) + e - Diagonal(sigma(e)) * e]
        case Parameter():
            rules += [
                lambda: Kronecker(Identity(rows), Vec(Identity(columns)).T) * Kronecker(Vec(e), Identity(columns))
            ]
    return rng.choice(rules)()


def test_rewriting_by_a_true_rule_keeps_the_normal_form():
    rng = random.Random(1)
    for _ in range(150):
        expression = random_expression(rng, rng.choice(SHAPES), rng.randint(1, 3))
        other = expression
        for _ in range(rng.randint(1, 3)):
            other = rewritten(rng, other)
        assert equal(expression, other), f"{expression} and {other}"


def test_what_is_shown_at_random_agrees_at_numbers():
    rng, met = random.Random(2), 0
    for shape in SHAPES:
        found = {}
        for _ in range(400):
            expression = random_expression(rng, shape, rng.randint(1, 2))
            other = found.setdefault(normal_form(expression), expression)
            if other != expression:
                met += 1
                assert value(other, 0) == value(expression, 0) and value(other, 1) == value(expression, 1)
            assert value(normal_form(expression).expression(), 0) == value(expression, 0)
    assert met > 50, met
