"""The normal form decides equality: what it must accept, what it must refuse, and that it never changes a value."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import Identity, ImmutableMatrix, Integer, Rational, Symbol, ZeroMatrix

from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition, nonnegative
from symbolic.equality.normal_form import equal, normal_form
from symbolic.equality.word import Word
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.evaluation.interpreter import Interpreter, exact
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.matrix import MatrixProduct
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.theorems.residual_stack import ResidualStack, i, j

N, M, P = (Symbol(name, integer=True, positive=True) for name in "NMP")
I, J, K = (Symbol(name, integer=True, nonnegative=True) for name in "ijk")
A, B, C = (Parameter(letter, (), N, N) for letter in "ABC")
u, v, w = (Parameter(letter, (), N, 1) for letter in "uvw")
X = Variable("x", (), N, M)


def family(letter):
    return lambda index: Parameter(letter, (index,), N, N)


F, G = family("F"), family("G")


def total(body, index, last=P):
    return IndexedSum(body, index, 1, last)


EQUAL = {
    "products_distribute_over_sums": ((A + B) * (A - B), A * A - A * B + B * A - B * B),
    "sums_commute": (A + B + C, C + A + B),
    "the_identity_is_neutral": (A * Identity(N) + Identity(N) * B, A + B),
    "a_difference_with_itself_is_zero": (A * B - A * B, ZeroMatrix(N, N)),
    "the_transpose_of_a_product_is_reversed": ((A * B).T, B.T * A.T),
    "transposing_twice_is_nothing": ((A.T + B).T, A + B.T),
    "arguments_of_activations_are_normalised": (Activation((A + B) * v), Activation(B * v + A * v)),
    "activations_nest": (Activation(A * Activation(B * v + u)), Activation(A * Activation(u + B * v))),
    "powers_are_products": (A.T * A.T * u, (A * A).T * u),
    "coefficients_are_exact": (Rational(1, 3) * A + Rational(1, 6) * A, Rational(1, 2) * A),
    "kronecker_products_multiply_factor_by_factor": (
        Kronecker(A, B) * Kronecker(C, A),
        Kronecker(A * C, B * A),
    ),
    "kronecker_is_bilinear": (Kronecker(A + B, C), Kronecker(A, C) + Kronecker(B, C)),
    "kronecker_transposes_factor_by_factor": (Kronecker(A, B).T, Kronecker(A.T, B.T)),
    "a_kronecker_product_of_identities_is_one": (
        Kronecker(Identity(N), Identity(N)) * Kronecker(A, B),
        Kronecker(A, B),
    ),
    "vec_of_a_product_is_a_kronecker_product": (
        Vec(A * X * Parameter("W", (), M, P)),
        Kronecker(A, Parameter("W", (), M, P).T) * Vec(X),
    ),
    "vec_commutes_with_the_activation": (Vec(Activation(A * X)), Activation(Kronecker(A, Identity(M)) * Vec(X))),
    "vec_of_an_outer_product_is_a_kronecker_product": (Vec(u * v.T), Kronecker(u, v)),
    "diagonals_commute_with_the_vector": (Diagonal(A * u) * v, Diagonal(v) * A * u),
    "products_entry_by_entry_commute": (Hadamard(u, Hadamard(v, w)), Hadamard(w, Hadamard(u, v))),
    "diag_is_linear": (Diagonal(u + v) * w, Diagonal(w) * u + Diagonal(w) * v),
    "a_sum_gives_up_its_last_term": (total(F(J), J, I + 1), total(F(J), J, I) + F(I + 1)),
    "a_sum_with_numbers_is_written_out": (total(F(J), J, 3), F(1) + F(2) + F(3)),
    "an_empty_sum_is_zero": (total(F(J), J, 0), ZeroMatrix(N, N)),
    "the_name_of_a_bound_index_is_nothing": (total(F(J), J), total(F(K), K)),
    "factors_move_into_a_sum": (A * total(F(J), J) * B, total(A * F(J) * B, J)),
    "a_product_of_sums_is_a_double_sum": (total(F(J), J) * total(G(J), J), total(total(F(J) * G(K), K), J)),
    "a_sum_beside_an_activation_of_a_sum": (
        total(F(J), J) * Activation(total(G(J), J) * v),
        total(F(J) * Activation(total(G(K), K) * v), J),
    ),
}  # fmt: skip

DIFFERENT = {
    "factors_dont_commute": (A * B, B * A),
    "a_transpose_isnt_the_matrix": (A.T, A),
    "the_order_of_a_transposed_product_matters": ((A * B).T, A.T * B.T),
    "signs_matter": (A - B, A + B),
    "an_activation_isnt_linear": (Activation(A * (u + v)), Activation(A * u) + Activation(A * v)),
    "an_activation_isnt_its_slope": (Activation(u), Activation(u, 1)),
    "kronecker_factors_dont_commute": (Kronecker(A, B), Kronecker(B, A)),
    "indices_matter": (F(1), F(2)),
    "a_product_of_sums_isnt_a_sum_of_products": (total(F(J), J) * total(G(J), J), total(F(J) * G(J), J)),
    "nor_a_double_sum_over_one_index": (total(F(J), J) * total(G(J), J), total(total(F(J) * G(J), J), J)),
    "bounds_matter": (total(F(J), J, I), total(F(J), J, I + 1)),
    "a_matrix_doesnt_leave_diag": (Diagonal(u) * A * v, A * Diagonal(u) * v),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name):
    assert equal(*EQUAL[name])


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name):
    assert not equal(*DIFFERENT[name])


def random_expression(rng, depth, square):
    """Return a random 2 × 2 or 2 × 1 expression."""
    if depth == 0:
        letters, columns = ("ABC", 2) if square else ("uvw", 1)
        return Parameter(rng.choice(letters), (), 2, columns)
    match rng.choice(("sum", "difference", "product", "scaled", "transpose", "activation", "diagonal")):
        case "sum":
            return random_expression(rng, depth - 1, square) + random_expression(rng, depth - 1, square)
        case "difference":
            return random_expression(rng, depth - 1, square) - random_expression(rng, depth - 1, square)
        case "scaled":
            return Rational(rng.randint(-3, 3), 2) * random_expression(rng, depth - 1, square)
        case "transpose" if square:
            return random_expression(rng, depth - 1, True).T
        case "activation":
            return Activation(random_expression(rng, depth - 1, square))
        case "diagonal":
            return Diagonal(random_expression(rng, depth - 1, False)) * random_expression(rng, depth - 1, square)
        case _:
            return random_expression(rng, depth - 1, True) * random_expression(rng, depth - 1, square)


def value(expression, seed):
    rng = random.Random(seed)
    values = {
        Parameter(letter, (), 2, columns): ImmutableMatrix(2, columns, lambda *_: Fraction(rng.randint(-4, 4), 3))
        for letters, columns in (("ABC", 2), ("uvw", 1))
        for letter in letters
    }
    return [entry.expand() for entry in Interpreter(values, exact(lambda t: t**2 - t)).value(expression)]


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 4), st.booleans())
def test_the_normal_form_never_changes_a_value(seed, depth, square):
    expression = random_expression(random.Random(seed), depth, square)
    assert value(normal_form(expression).expression(), seed) == value(expression, seed)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 3))
def test_what_is_equal_has_equal_values(seed, other, depth):
    left, right = (random_expression(random.Random(s), depth, True) for s in (seed, other))
    if equal(left, right):
        assert value(left, 1) == value(right, 1)


def random_sums(rng, depth, indices=()):
    """Return a random N × N expression with sums of symbolic bounds, nested, shifted, in products and activations."""
    if depth == 0:
        index = rng.choice([*indices, None])
        return rng.choice((A, B)) if index is None else rng.choice((F, G))(index + rng.randint(-1, 2))
    left, right = (random_sums(rng, depth - 1, indices) for _ in range(2))
    match rng.randint(0, 6):
        case 0 | 1:
            return left + rng.choice((1, -1, 2)) * right
        case 2:
            return left * right
        case 3:
            return left.T
        case 4:
            return Activation(left)
    index = (J, K, I)[len(indices)]
    first, last = rng.choice(((1, P), (1, P + 1), (2, P), (0, P), (1, 3)))
    return A * IndexedSum(random_sums(rng, depth - 1, (*indices, index)), index, first, last)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 3))
def test_an_expression_with_sums_equals_its_normal_form(seed, depth):
    expression = random_sums(random.Random(seed), depth)
    assert equal(expression, normal_form(expression).expression())


def test_a_sum_is_split_wherever_it_stands():
    whole = A * total((F(J) + G(J + 1)) * u, J)
    parts = A * total(F(J) * u, J) + A * total(G(J + 1) * u, J)
    assert equal(whole, parts) and equal(Activation(whole), Activation(parts))


two = [Parameter(letter, (), 2, 1) for letter in "uvwz"]
a, b = (lambda k, letter=letter: Parameter(letter, (k,), 2, 2) for letter in "ab")
X2, Y2 = Parameter("X", (), 2, 2), Parameter("Y", (), 2, 2)
MANY = [total(Parameter(f"g{k}", (J,), 2, 2), J, N) for k in range(9)]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            Vec(two[0] * two[2].T * Diagonal(two[1]) + two[0] * two[1].T * Diagonal(two[2])),
            Vec(two[0] * two[2].T * Diagonal(two[1])),
        ),
        (
            (Activation(two[2].T * Diagonal(two[1]) + two[1].T * Diagonal(two[2]))).T,
            Activation(Hadamard(two[1], two[2])),
        ),
        (
            total(a(J), J, N) * total(Activation(K * two[3]), K, N),
            total(total(a(J) * Activation(J * two[3]), K, N), J, N),
        ),
        (IndexedSum(a(J), J, 2, I + 1), IndexedSum(a(J), J, 2, I) + a(I + 1)),
        (IndexedSum(a(J), J, K, I + 1), IndexedSum(a(J), J, K, I) + a(I + 1)),
        (
            MatrixProduct(*MANY[:7], total(a(J), J, N), total(b(J), J, N)),
            MatrixProduct(*MANY[:7], total(Identity(2), J, N), total(a(J) * b(J), J, N)),
        ),
    ],
    ids=["rows_in_vec", "rows_in_a_transpose", "coefficients", "first_of_two", "symbolic_first", "nine_sums"],
)
def test_words_and_indices_that_meet_arent_lost(left, right):
    assert not equal(left, right)


def test_definitions_know_an_index_only_where_it_is_linear():
    j2 = Symbol("j", integer=True, nonnegative=True)
    rules = (Definition(a(I), Y2, (I,)),)
    for index in (4 - j2**2, 4 - 2**j2, j2 * (j2 - 3), (-2) ** j2):
        assert not nonnegative(index, {j2: (Integer(0), Integer(2))})
        assert not equal(total(a(index), j2, N), total(Y2, j2, N), rules)
    assert equal(total(a(2 * j2 + 1), j2, N), total(Y2, j2, N), rules)


def test_an_index_is_at_least_0_only_if_it_is_declared_so():
    rules = (Definition(a(I), Y2, (I,)),)
    for undeclared in (Symbol("i"), Symbol("i", integer=True), Symbol("i", integer=True, nonpositive=True)):
        assert not nonnegative(undeclared)
        assert not equal(a(undeclared), Y2, rules)
        assert not equal(total(a(J), J, undeclared + 1), total(a(J), J, undeclared) + a(undeclared + 1))
    assert not nonnegative(Symbol("i", nonnegative=True) / 2) and not nonnegative(I - 1)
    assert nonnegative(N - 1) and not nonnegative(N - 2) and nonnegative(N + 2 * M - 3)


def test_a_definition_that_may_not_apply_hides_the_later_ones():
    rules = (Definition(a(0), X2), Definition(a(I), Y2, (I,)))
    assert not equal(a(I), Y2, rules)
    assert equal(a(I + 1), Y2, rules)
    assert equal(a(0), X2, rules)
    assert not equal(IndexedSum(a(J), J, 0, N), IndexedSum(Y2, J, 0, N), rules)
    assert not equal(IndexedSum(a(J), J, -2, N), IndexedSum(Y2, J, -2, N), rules[1:])
    assert Definition(Parameter("C", (1,), 2, 2, (2,)), X2).applied_to(Parameter("C", (1, 2), 2, 2)) is False
    with pytest.raises(SymbolicError, match="variable plus a number"):
        Definition(a(2 * I), X2, (I,))


def test_shapes_are_the_same_however_they_are_written():
    left, right = Vec(Parameter("A", (), N + 1, M)), Parameter("p", (), M * N + M, 1)
    assert equal(left + right, right + left)
    assert equal(Activation(left + right), Activation(right + left))


def test_zeros_of_different_shapes_arent_one_thing():
    square, column = (normal_form(Activation(ZeroMatrix(2, columns))) for columns in (2, 1))
    assert square != column
    assert normal_form(Activation(ZeroMatrix(2, 1))).expression().shape == (2, 1)
    assert [Activation(ZeroMatrix(n, 1)).shape for n in (2, 3)] == [
        normal_form(Activation(ZeroMatrix(n, 1))).expression().shape for n in (2, 3)
    ]


def test_a_normal_form_is_its_own_normal_form():
    form = normal_form(ResidualStack().x(3), [ResidualStack().equation_20])
    assert normal_form(form.expression()) == form


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: A * X.T, ("A is N × N", "M × N", "don't multiply")),
        (lambda: A + X, ("don't add", "same shape")),
        (lambda: equal(A, u), ("don't add",)),
        (lambda: normal_form(A + Parameter("A", (), N, M) * X.T), ("two shapes", "another letter")),
        (lambda: Hadamard(A, X), ("same shape",)),
        (lambda: Activation(u, 2), ("slope",)),
        (lambda: Diagonal(A), ("diag takes a vector", "N × N")),
        (lambda: normal_form(IndexedSum(J * A, J, 1, P)), ("coefficient", "index")),
        (lambda: Parameter("W", (), 0, 2), ("0 × 2", "positive")),
        (lambda: ResidualStack(width=-3), ("-3", "positive")),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_remedy(build, words):
    with pytest.raises((ShapeMismatch, SymbolicError)) as caught:
        build()
    assert all(word in str(caught.value) for word in words), caught.value


def test_sizes_may_be_numbers():
    stack = ResidualStack(width=6, neurons=8)
    assert stack.W(1, 3).shape == (6, 8)
    assert equal(stack.x(2), stack.form(2), [stack.equation_20, *stack.recursions])


def test_a_sum_over_heads_is_sorted_by_the_stream():
    x, bias = Parameter("x'", (), N, 1), Parameter("b", (), N, 1)
    found = collect(x + total(F(J) * G(J) * x, J) + total(F(J) * bias, J) + Activation(total(G(J) * x, J)), x)
    assert equal(found.path, Identity(N) + total(F(J) * G(J), J)) and equal(found.offset, total(F(J), J) * bias)
    assert equal(found.terms[0].inner, total(G(J), J))
    assert str(normal_form(Vec(total(F(J) * X, J))).expression()) == "((Σ[j=1..P] Fⱼ) ⊗ I) vec(x)"


def test_what_is_written_out_keeps_bound_indices_apart():
    nested = IndexedSum(IndexedSum(F(J) * G(K), K, 1, J), J, 1, 2)
    assert nested.free_symbols & {J, K} == set() and F(J).free_symbols >= {J}
    assert equal(nested.doit(), F(1) * G(1) + F(2) * G(1) + F(2) * G(2))
    assert IndexedSum(F(J), J, 1, P).subs(J, 3) == IndexedSum(F(J), J, 1, P)
    assert IndexedSum(F(J), J, 1, 0).doit() == ZeroMatrix(N, N)
    assert (A + B * A).doit() == A + B * A


def test_a_definition_isnt_put_in_where_a_bound_index_may_be_below_zero():
    n = Symbol("n", integer=True, positive=True)

    def family(letter, index):
        return Parameter(letter, (index,), 2, 2)

    from_zero = Definition(family("A", i), family("B", i), (i,))
    for first, known in ((1, True), (0, True), (i - 3, False), (Symbol("m", integer=True), False), (-3, False)):
        sums = [IndexedSum(family(letter, j), j, first, n) for letter in "AB"]
        assert equal(*sums, [from_zero]) is known, first


def test_words_whose_weights_are_equal_by_chance_stay_in_the_order_in_which_they_are_written(monkeypatch):
    """Weights are sums of hashes, which are other numbers in every process: a printed proof must not depend on them."""
    product = (A + B) * (A + C) * (u + B * w + v)
    written = str(normal_form(product).expression())
    monkeypatch.setattr(Word, "weight", property(lambda word: len(word.atoms)))
    assert str(normal_form(product).expression()) == written
