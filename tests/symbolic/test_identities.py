"""Identities and what looks like one: each true one is shown or undecided, as stated; no wrong one is shown."""

import random
from fractions import Fraction

import pytest
from identities import TRUE, UNDECIDED, WRONG, M, N, P, i, j, k, m, n, s, sigma, t, total
from sympy import Identity, ImmutableMatrix, Integer, MatAdd, Rational, Trace, ZeroMatrix

from symbolic.equality.normal_form import equal, normal_form
from symbolic.evaluation.interpreter import Interpreter, exact
from symbolic.expressions.activation import Activation
from symbolic.expressions.constructors import ones, scalar
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.parameter import Ones, Parameter

SCALARS = "alpha", "beta", "p", "r"


def numbers(seed):
    """Return small numbers for all sizes, indices and bounds."""
    rng = random.Random(seed)
    sizes = {N: 2, M: rng.choice((1, 3)), P: 2}
    whole = {index: rng.randint(0, 3) for index in (n, m, i, j, k)}
    return {symbol: Integer(x) for symbol, x in (sizes | whole | {t: rng.randint(1, 3), s: rng.randint(-3, 2)}).items()}


def sample(parameter, seed):
    """Return a matrix of rational numbers that depends on the parameter's name and a seed; a scalar is a square."""
    rng = random.Random(f"{parameter} {parameter.shape} {seed}")
    if parameter.letter in SCALARS:
        return ImmutableMatrix([[Rational(rng.randint(1, 4), rng.choice((1, 2, 3))) ** 2]])
    return ImmutableMatrix(*map(int, parameter.shape), lambda *_: Fraction(rng.randint(-3, 3), rng.choice((1, 2))))


ARITHMETIC = exact(lambda x: x**3 - 2 * x + 1, lambda x: 3 * x**2 - 2)
LAYERS = {  # each layer's own function, of which no two agree anywhere
    f"σ[{k}]": exact(lambda x, k=k: x**3 - 2 * x + k + 2, lambda x, k=k: 3 * x**2 + k).activations for k in range(9)
}
NAMED = ARITHMETIC.__class__(**{**vars(ARITHMETIC), "activations": LAYERS | {
    "σ": ARITHMETIC.activations, "τ": ARITHMETIC.activations[::-1],
}})  # fmt: skip


def value(expression, seed):
    """Return the exact value of an expression at the numbers of a seed."""
    interpreter = Interpreter(lambda parameter: sample(parameter, seed), NAMED)
    return interpreter.value(expression.xreplace(numbers(seed))).expand()


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
    assert len(TRUE) >= 72 and len(WRONG) >= 74


SHAPES = ((2, 2), (2, 1), (1, 2), (1, 1), (4, 1))


def random_scalar(rng, depth):
    """Return a random number: a scalar, an entry, an inner product, a trace, a power of one, or a sum or product."""
    match rng.choice(("scalar", "entry", "inner", "trace", "power", "root", "sum", "product")):
        case "entry":
            rows, columns = rng.choice(((2, 2), (2, 1), (1, 2)))
            return random_expression(rng, (rows, columns), depth)[rng.randrange(rows), rng.randrange(columns)]
        case "inner":
            return (random_expression(rng, (2, 1), depth).T * random_expression(rng, (2, 1), depth))[0, 0]
        case "trace":
            return Trace(random_expression(rng, (2, 2), depth))
        case "power" if depth:
            return random_scalar(rng, depth - 1) ** rng.choice((2, 3))
        case "root":
            return (scalar("p") * scalar("r") ** rng.choice((0, 1))) ** Rational(rng.choice((-2, -1, 1)), 2)
        case "sum" if depth:
            return random_scalar(rng, depth - 1) + rng.choice((1, Rational(1, 2), random_scalar(rng, depth - 1)))
        case "product" if depth:
            return random_scalar(rng, depth - 1) * random_scalar(rng, depth - 1)
    return scalar(rng.choice("pr"))


def random_expression(rng, shape, depth):
    """Return a random expression of numeric shape, of few letters, so that two of them are often equal."""
    rows, columns = shape

    def part(*inner):
        return random_expression(rng, inner, depth - 1)

    if depth == 0:
        index = (rng.choice((1, 2)),) if rng.random() < 0.3 else ()
        if columns == 1 and rng.random() < 0.15:
            return ones(rows)
        return Parameter(rng.choice("ab") + f"{rows}{columns}", index, rows, columns)
    kinds = "sum", "product", "transpose", "scale", "hadamard", "activation", "vec", "kronecker", "indexed"
    match rng.choice((*kinds, "scalar", "scalar", "float", "power")):
        case "sum":
            return part(rows, columns) + part(rows, columns)
        case "transpose":
            return part(columns, rows).T
        case "scale":
            return Rational(rng.choice((-1, 1, 2)), 2) * part(rows, columns)
        case "scalar":
            return random_scalar(rng, min(depth - 1, 1)) * part(rows, columns)
        case "float":
            return rng.choice((0.5, -1.0, 0.1, 1e-17)) * part(rows, columns)
        case "power" if rows == columns:
            return part(rows, columns) ** rng.choice((0, 2, 3))
        case "hadamard" if columns == 1 and rng.random() < 0.5:
            return Diagonal(part(rows, 1)) * part(rows, 1)
        case "hadamard":
            return Hadamard(part(rows, columns), part(rows, columns))
        case "activation":
            return sigma(part(rows, columns), *rng.choice(((), (), (), (1,), (2,))))
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
            moving = next((p for p in sorted(summand.atoms(Parameter), key=str) if not p.has(Ones)), None)
            if moving is None:
                return summand
            moved = Parameter(moving.letter, (j,), *moving.shape)
            if functions := sorted(summand.atoms(Activation), key=str):
                function = rng.choice(functions)
                summand = summand.xreplace({function: sigma(function.argument, j + rng.choice((0, 0, 1)))})
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
    p, two = scalar("p"), ones(2)
    rules += [
        lambda: (p + 1) * e - p * e,
        lambda: Trace(Identity(3)) * e - (two.T * two)[0, 0] * e,
        lambda: 0.75 * e + e / 4,
        lambda: p**2 * e / p / p,
        lambda: Hadamard(ones(rows) * ones(columns).T, e),
        lambda: Trace(Identity(rows)) * e / rows,
    ]
    match e:
        case Hadamard():
            rules += [lambda: Hadamard(*e.args[::-1]), lambda: Hadamard(*(part.T for part in e.args)).T]
        case Vec():
            rules += [lambda: sum((Vec(part) for part in e.matrix.args), ZeroMatrix(rows, 1))] * (
                isinstance(e.matrix, MatAdd)
            )
        case Activation():
            rules += [lambda: sigma(e.argument.T, *e.indices).T]
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


def with_another_layer(rng, e, bound=()):
    """Return an expression in which one activation function is that of another layer."""
    places = [p for p, part in enumerate(e.args) if hasattr(part, "has") and part.has(Activation)]
    if isinstance(e, Activation) and (not places or rng.random() < 0.5):
        return sigma(e.argument, *rng.choice([(), (1,), (2,), (n,), *((index + 1,) for index in bound)]))
    inner = (*bound, e.index) if isinstance(e, IndexedSum) else bound
    place = rng.choice(places)
    return e.func(*(with_another_layer(rng, part, inner) if p == place else part for p, part in enumerate(e.args)))


def test_a_function_of_another_layer_is_noticed():
    rng, different = random.Random(6), 0
    for _ in range(500):
        expression = random_expression(rng, rng.choice(SHAPES), rng.randint(1, 3))
        if not expression.has(Activation):
            continue
        mutant = with_another_layer(rng, expression)
        if any(value(expression, seed) != value(mutant, seed) for seed in (0, 1)):
            different += 1
            assert not equal(expression, mutant), f"{expression} and {mutant}"
    assert different > 40, different


def compared_at_random(seed, count):
    """Return how many pairs of random expressions are shown equal, and how many of these differ at numbers."""
    rng, shown, wrong = random.Random(seed), 0, []
    for shape in SHAPES:
        found = {}
        for _ in range(count // len(SHAPES)):
            expression = random_expression(rng, shape, rng.choice((1, 2, 2, 2, 3)))
            form = normal_form(expression)
            other = found.setdefault(form, expression)
            pair = other if other != expression else form.expression()
            shown += other != expression
            if any(value(pair, k) != value(expression, k) for k in (0, 1)):
                wrong.append((pair, expression))
    return shown, wrong


@pytest.mark.parametrize(
    ("seed", "count"), [(2, 600), *(pytest.param(seed, 10_000, marks=pytest.mark.slow) for seed in (3, 4, 5))]
)
def test_what_is_shown_at_random_agrees_at_numbers(seed, count):
    shown, wrong = compared_at_random(seed, count)
    assert not wrong, wrong[0]
    assert shown > count / 50, shown
