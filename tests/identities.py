"""Tables of identities: true and shown, true and undecided with the reason, wrong."""

from sympy import Identity, Rational, Symbol, Trace, ZeroMatrix

from symbolic.expressions.activation import Activation
from symbolic.expressions.constructors import identity, ones, scalar
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable

N, M, P = (Symbol(name, integer=True, positive=True) for name in "NMP")
n, m, i, j, k = (Symbol(name, integer=True, nonnegative=True) for name in ("n", "m", "i", "j", "k"))
t, s = Symbol("t", integer=True, positive=True), Symbol("s", integer=True)
A, B, C, D = (Parameter(letter, (), N, N) for letter in "ABCD")
R, S = (Parameter(letter, (), M, M) for letter in "RS")
E, F, G = (Parameter(letter, (), N, M) for letter in "EFG")
U = Parameter("U", (), M, P)
u, v, w, z = (Parameter(letter, (), N, 1) for letter in "uvwz")
a, b = (Parameter(letter, (), M, 1) for letter in "ab")
q = Parameter("q", (), N * M, 1)
Y = Parameter("Y", (), N * M, N * M)
X = Variable("x", (), N, M)
Q, K, V = (Parameter(letter, (), N, M) for letter in "QKV")
IN, IM, INM = Identity(N), Identity(M), Identity(N * M)
alpha, beta = scalar("alpha"), scalar("beta")
one, one_m = ones(N), ones(M)


def f(*index):
    return Parameter("f", index, N, N)


def g(*index):
    return Parameter("g", index, N, N)


def h(*index):
    return Parameter("h", index, N, 1)


def total(body, index, first, last):
    return IndexedSum(body, index, first, last)


def sigma(argument, *layer):
    return Activation(argument, lower=layer)


def kron(*factors):
    first, *rest = factors
    return Kronecker(first, kron(*rest)) if rest else first


TRUE = {
    # ⊙ and diag
    "diagonals_multiply_entry_by_entry": (Diagonal(u) * Diagonal(v), Diagonal(Hadamard(u, v))),
    "diagonals_commute": (Diagonal(u) * Diagonal(v), Diagonal(v) * Diagonal(u)),
    "diag_of_a_product_commutes": (Diagonal(A * u) * Diagonal(v) * B, Diagonal(v) * Diagonal(A * u) * B),
    "three_diagonals_in_a_product": (
        A * Diagonal(u) * Diagonal(v) * Diagonal(w) * B,
        A * Diagonal(Hadamard(w, Hadamard(v, u))) * B,
    ),
    "entrywise_products_commute": (Hadamard(u, v), Hadamard(v, u)),
    "entrywise_products_associate": (Hadamard(Hadamard(u, v), w), Hadamard(u, Hadamard(v, w))),
    "four_entrywise_factors": (Hadamard(Hadamard(u, v), Hadamard(w, z)), Hadamard(z, Hadamard(u, Hadamard(w, v)))),
    "entrywise_products_distribute": (Hadamard(u + v, w), Hadamard(u, w) + Hadamard(v, w)),
    "entrywise_products_of_matrices_commute": (Hadamard(E, F), Hadamard(F, E)),
    "entrywise_products_of_matrices_associate": (Hadamard(Hadamard(E, F), G), Hadamard(E, Hadamard(F, G))),
    "entrywise_products_of_matrices_distribute": (Hadamard(E + F, G), Hadamard(E, G) + Hadamard(F, G)),
    "entrywise_products_transpose": (Hadamard(E, F).T, Hadamard(E.T, F.T)),
    "vec_of_an_entrywise_product": (Vec(Hadamard(E, F)), Diagonal(Vec(E)) * Vec(F)),
    "vec_of_an_entrywise_product_with_data": (Vec(Hadamard(E, A * X)), Diagonal(Vec(E)) * Kronecker(A, IM) * Vec(X)),
    "rows_and_columns_scaled": (Diagonal(u) * E * Diagonal(a), Hadamard(u * a.T, E)),
    "entrywise_with_an_outer_product": (Hadamard(u * a.T, v * b.T), Hadamard(u, v) * Hadamard(a, b).T),
    "a_diagonal_is_symmetric": (Diagonal(A * u).T, Diagonal(A * u)),
    "diag_is_linear": (Diagonal(2 * u + v), 2 * Diagonal(u) + Diagonal(v)),
    "diag_times_a_vector": (Diagonal(u) * v, Diagonal(v) * u),
    "a_covector_times_diag": (u.T * Diagonal(v), Hadamard(u, v).T),
    "a_weighted_inner_product": (u.T * Diagonal(v) * w, v.T * Hadamard(u, w)),
    # ⊗
    "kronecker_associates": (Kronecker(Kronecker(A, R), E), Kronecker(A, Kronecker(R, E))),
    "kronecker_is_bilinear": (Kronecker(A + B, R), Kronecker(A, R) + Kronecker(B, R)),
    "kronecker_multiplies_factor_by_factor": (Kronecker(A, R) * Kronecker(B, S), Kronecker(A * B, R * S)),
    "kronecker_of_unlike_shapes_multiplies": (Kronecker(E, A) * Kronecker(U, u), Kronecker(E * U, A * u)),
    "kronecker_of_three_multiplies": (kron(A, R, C) * kron(B, S, D), kron(A * B, R * S, C * D)),
    "kronecker_grouped_otherwise_multiplies": (
        Kronecker(Kronecker(A, R), C) * Kronecker(B, Kronecker(S, D)),
        Kronecker(Kronecker(A * B, R * S), C * D),
    ),
    "an_identity_is_a_kronecker_product": (Kronecker(IN, IM), INM),
    "the_order_of_identities_is_nothing": (Kronecker(IN, IM), Kronecker(IM, IN)),
    "identities_inside_a_kronecker_product": (kron(A, IM, IN), Kronecker(A, INM)),
    "kronecker_splits_into_two_factors": (Kronecker(A, R), Kronecker(A, IM) * Kronecker(IN, R)),
    "kronecker_factors_on_two_sides_commute": (
        Kronecker(A, IM) * Kronecker(IN, R),
        Kronecker(IN, R) * Kronecker(A, IM),
    ),
    "kronecker_transposes": (Kronecker(A, E).T, Kronecker(A.T, E.T)),
    "a_kronecker_product_of_diagonals": (Kronecker(Diagonal(u), Diagonal(a)), Diagonal(Kronecker(u, a))),
    "a_kronecker_product_of_vectors": (Kronecker(u, a), Vec(u * a.T)),
    "an_outer_product_is_a_kronecker_product": (Kronecker(u, a.T), u * a.T),
    "an_outer_product_either_way": (Kronecker(u, a.T), Kronecker(a.T, u)),
    "a_number_times_a_matrix": (Kronecker(u.T * v, A), Kronecker(A, v.T * u)),
    "kronecker_meets_a_kronecker_vector": (Kronecker(A, R) * Kronecker(u, a), Kronecker(A * u, R * a)),
    "a_matrix_beside_an_identity": (Kronecker(A, IM) * Y * Kronecker(IN, R), kron(A, IM) * Y * kron(IN, R)),
    "an_entrywise_product_of_kronecker_products": (
        Hadamard(Kronecker(A, R), Kronecker(B, S)),
        Kronecker(Hadamard(A, B), Hadamard(R, S)),
    ),
    # vec
    "vec_of_a_product_on_the_left": (Vec(A * E), Kronecker(A, IM) * Vec(E)),
    "vec_of_a_product_on_the_right": (Vec(E * R), Kronecker(IN, R.T) * Vec(E)),
    "vec_of_two_factors_either_way": (Kronecker(A, IM) * Vec(E), Kronecker(IN, E.T) * Vec(A)),
    "vec_of_three_factors": (Vec(A * E * R), Kronecker(A, R.T) * Vec(E)),
    "vec_of_three_factors_by_parts": (Kronecker(A, IM) * Vec(E * R), Kronecker(IN, R.T) * Vec(A * E)),
    "vec_of_attention": (Vec(Q * K.T * V), Kronecker(Q * K.T, IM) * Vec(V)),
    "vec_of_attention_at_its_queries": (Vec(Q * K.T * V), Kronecker(IN, (K.T * V).T) * Vec(Q)),
    "vec_of_attention_at_its_keys": (Vec(Q * K.T * V), Kronecker(Q, V.T) * Vec(K.T)),
    "vec_is_linear": (Vec(E + 2 * F), Vec(E) + 2 * Vec(F)),
    "vec_of_a_sum_of_heads": (
        Vec(total(f(j), j, 1, n) * X * R),
        total(Kronecker(f(j), R.T), j, 1, n) * Vec(X),
    ),
    "vec_of_a_vector": (Vec(u), u),
    "vec_of_a_covector": (Vec(u.T), u),
    "vec_of_a_diagonal_product": (Vec(Diagonal(u) * E), Kronecker(Diagonal(u), IM) * Vec(E)),
    "vec_of_an_activation": (Vec(sigma(A * X)), sigma(Kronecker(A, IM) * Vec(X))),
    "vec_of_an_activation_of_parameters": (Vec(sigma(A * E)), sigma(Vec(A * E))),
    "an_inner_product_of_matrices": (Vec(E).T * Vec(A * F), Vec(A.T * E).T * Vec(F)),
    # numbers
    "inner_products_are_symmetric": (u.T * v, v.T * u),
    "a_bilinear_form_transposes": (u.T * A * v, v.T * A.T * u),
    "a_number_moves_to_the_other_side": (w * (u.T * A * v), Kronecker(v.T * A.T * u, w)),
    "numbers_commute": ((u.T * v) * (w.T * z), (z.T * w) * (v.T * u)),
    "a_number_between_a_column_and_a_row": (w * (u.T * v) * a.T, (w * v.T) * (u * a.T)),
    "a_number_squared": ((u.T * v) * (u.T * v), u.T * (v * v.T) * u),
    # activations
    "activations_transpose": (sigma(A * E).T, sigma(E.T * A.T)),
    "an_activation_of_a_symmetric_matrix": (sigma(A + A.T), sigma(A + A.T).T),
    "an_activation_of_what_is_equal": (sigma(Hadamard(u, A * v)), sigma(Diagonal(A * v) * u)),
    "activations_multiply_entry_by_entry": (Hadamard(sigma(A * u), sigma(v)), Hadamard(sigma(v), sigma(A * u))),
    "an_activation_of_a_sum_over_layers": (
        sigma(total(f(j), j, 1, n) * u),
        sigma(total(f(k) * u, k, 1, n)),
    ),
    # sums
    "a_sum_gives_up_its_last_term": (total(f(j), j, 1, n + 1), total(f(j), j, 1, n) + f(n + 1)),
    "a_sum_gives_up_its_first_term": (total(f(j), j, 1, t), f(1) + total(f(j), j, 2, t)),
    "a_sum_from_zero": (total(f(j), j, 0, n), f(0) + total(f(j), j, 1, n)),
    "a_sum_splits": (total(f(j), j, 1, n + m), total(f(j), j, 1, n) + total(f(j), j, n + 1, n + m)),
    "a_sum_splits_in_three": (
        total(f(j), j, 1, n + m + 2),
        total(f(j), j, 1, n) + f(n + 1) + total(f(j), j, n + 2, n + m + 2),
    ),
    "a_sum_loses_its_last_term": (total(f(j), j, 1, t) - f(t), total(f(j), j, 1, t - 1)),
    "a_sum_counts_from_elsewhere": (total(f(j + 1), j, 1, n), total(f(j), j, 2, n + 1)),
    "a_sum_counts_from_zero": (total(f(j + 1), j, 0, n), total(f(j), j, 1, n + 1)),
    "a_sum_counts_from_a_symbol": (total(f(j + i), j, 1, n), total(f(j), j, i + 1, i + n)),
    "a_sum_of_neighbours_counts_from_elsewhere": (
        total(f(j) * g(j + 1), j, 1, n),
        total(f(j - 1) * g(j), j, 2, n + 1),
    ),
    "a_shifted_sum_gives_up_its_last_term": (total(f(j + 1), j, 1, n + 1), total(f(j + 1), j, 1, n) + f(n + 2)),
    "sums_are_exchanged": (total(total(f(j, k), k, 1, m), j, 1, n), total(total(f(j, k), j, 1, n), k, 1, m)),
    "three_sums_are_exchanged": (
        total(total(total(f(i, j, k), k, 1, n), j, 1, n), i, 1, m),
        total(total(total(f(i, j, k), i, 1, m), k, 1, n), j, 1, n),
    ),
    "sums_over_one_range_add": (total(f(j), j, 1, n) + total(g(j), j, 1, n), total(f(k) + g(k), k, 1, n)),
    "sums_counted_apart_add": (total(f(j), j, 1, n) + total(g(j + 1), j, 0, n - 1), total(f(k) + g(k), k, 1, n)),
    "a_factor_leaves_a_sum": (total(A * f(j) * B, j, 1, n), A * total(f(j), j, 1, n) * B),
    "a_coefficient_leaves_a_sum": (total(Rational(2, 3) * f(j), j, 1, n), Rational(2, 3) * total(f(j), j, 1, n)),
    "a_number_leaves_a_sum": (total(Kronecker(u.T * v, f(j)), j, 1, n), Kronecker(v.T * u, total(f(j), j, 1, n))),
    "a_product_of_sums": (total(f(j), j, 1, n) * total(g(j), j, 1, m), total(total(f(j) * g(k), j, 1, n), k, 1, m)),
    "the_square_of_a_sum": (
        (u.T * total(h(j), j, 1, n)) * (u.T * total(h(j), j, 1, n)),
        total(total((u.T * h(j)) * (h(k).T * u), k, 1, n), j, 1, n),
    ),
    "what_doesnt_move_is_counted": (total(A, j, 1, n), n * A),
    "an_empty_sum": (total(f(j), j, 1, 0), ZeroMatrix(N, N)),
    "a_sum_of_zeros": (total(f(j) - f(j), j, 1, n), ZeroMatrix(N, N)),
    "a_sum_transposes": (total(f(j), j, 1, n).T, total(f(j).T, j, 1, n)),
    "kronecker_with_a_sum": (Kronecker(total(f(j), j, 1, n), R), total(Kronecker(f(j), R), j, 1, n)),
    "diag_of_a_sum": (Diagonal(total(h(j), j, 1, n)) * u, total(Hadamard(u, h(j)), j, 1, n)),
    "an_entrywise_product_with_a_sum": (Hadamard(total(f(j), j, 1, n), A), total(Hadamard(A, f(j)), j, 1, n)),
    "activations_in_a_sum": (total(f(j) * sigma(g(j) * u), j, 1, n + 1), total(f(k) * sigma(g(k) * u), k, 1, n)
        + f(n + 1) * sigma(g(n + 1) * u)),
    "activations_of_two_indices": (
        total(total(sigma(f(j) * h(k)), k, 1, m), j, 1, n),
        total(total(sigma(f(j) * h(k)), j, 1, n), k, 1, m),
    ),
    # a function of its own in every layer
    "the_index_of_a_function_is_a_name": (total(f(j) * sigma(u, j), j, 1, n), total(f(k) * sigma(u, k), k, 1, n)),
    "the_index_of_a_function_is_shifted": (total(sigma(u, j + 1), j, 1, n), total(sigma(u, j), j, 2, n + 1)),
    "a_function_of_the_last_layer": (total(sigma(u, j), j, 1, n + 1), total(sigma(u, j), j, 1, n) + sigma(u, n + 1)),
    "functions_of_zero": (total(sigma(0 * u, j), j, 1, n + 1), total(sigma(0 * u, k), k, 1, n) + sigma(0 * v, n + 1)),
    "two_functions_exchanged": (
        total(total(sigma(A * sigma(h(k), k), j), k, 1, m), j, 1, n),
        total(total(sigma(A * sigma(h(k), k), j), j, 1, n), k, 1, m),
    ),
    "both_functions_renamed": (
        total(total(sigma(A * sigma(u, k), j), k, 1, n), j, 1, n),
        total(total(sigma(A * sigma(u, j), k), k, 1, n), j, 1, n),
    ),
    "a_function_of_a_sum_of_functions": (
        total(sigma(total(sigma(h(k), k), k, 1, n), j), j, 1, n),
        total(sigma(total(sigma(h(j), j), j, 1, n), k), k, 1, n),
    ),
    "a_function_of_a_layer_transposed": (sigma(A * E, i).T, sigma(E.T * A.T, i)),
    "vec_of_a_function_of_a_layer": (Vec(sigma(A * E, 2)), sigma(Kronecker(A, IM) * Vec(E), 2)),
    "functions_of_layers_multiply": (Hadamard(sigma(u, 1), sigma(v, 2)), Hadamard(sigma(v, 2), sigma(u, 1))),
}  # fmt: skip

UNDECIDED = {
    "a_sum_counted_backwards": (
        total(f(n + 1 - j), j, 1, n), total(f(j), j, 1, n),
        "an index that falls as another one rises isn't turned around",
    ),
    "a_triangle_is_exchanged": (
        total(total(f(j, k), k, 1, j), j, 1, n), total(total(f(j, k), j, k, n), k, 1, n),
        "bounds that depend on another sum's index aren't exchanged",
    ),
    "coefficients_over_a_denominator": (
        A / (N + 1) + N * A / (N + 1), A,
        "coefficients are multiplied out, and not brought to one denominator",
    ),
    "a_square_of_indices": (
        f((j + 1) ** 2), f(j**2 + 2 * j + 1),
        "indices in a parameter are compared as they are written",
    ),
    "a_bound_that_is_a_square": (
        total(f(j), j, 1, (n - m) ** 2 + 1), total(f(j), j, 1, (n - m) ** 2) + f((n - m) ** 2 + 1),
        "a bound is known to be at least 0 only if it has no negative term, multiplied out",
    ),
    "two_strides": (
        total(f(2 * j), j, 1, n) + total(f(2 * j - 1), j, 1, n), total(f(j), j, 1, 2 * n),
        "the index is shifted and never scaled",
    ),
}  # fmt: skip

TRUE |= {
    # scalars
    "scalars_commute": (alpha * A * beta, beta * (alpha * A)),
    "scalars_multiply_out": ((alpha + beta) ** 2 * A, alpha**2 * A + 2 * alpha * beta * A + beta**2 * A),
    "a_scalar_inside_everything": (Vec(Diagonal(alpha * u) * E), alpha * Kronecker(Diagonal(u), IM) * Vec(E)),
    "a_scalar_in_an_entrywise_product": (Hadamard(alpha * A, beta * B), alpha * beta * Hadamard(B, A)),
    "a_scalar_of_each_head": (
        total(scalar("alpha", j) * f(j), j, 1, n + 1),
        total(scalar("alpha", k) * f(k), k, 1, n) + scalar("alpha", n + 1) * f(n + 1),
    ),
    "a_scalar_is_divided_by_itself": (alpha * A / alpha, A),
    "a_root_of_what_is_equal": ((u.T * A * v)[0, 0] ** Rational(1, 2) * z, (v.T * A.T * u)[0, 0] ** Rational(1, 2) * z),
    "an_inner_product_is_a_number": ((u.T * v)[0, 0] * A, Kronecker(v.T * u, A)),
    "inner_products_multiply": ((u.T * v)[0, 0] * (w.T * z)[0, 0] * A, (z.T * w * v.T * u)[0, 0] * A),
    "an_entry_of_a_sum": ((A + 2 * B)[0, 1] * C, A[0, 1] * C + 2 * B[0, 1] * C),
    "an_entry_of_a_transpose": (A.T[0, 1] * C, A[1, 0] * C),
    "an_entry_of_a_product": ((A * B)[0, 1] * u, (B.T * A.T)[1, 0] * u),
    "an_entry_of_an_outer_product": ((u * a.T)[1, 0] * C, u[1] * a[0] * C),
    "an_entry_of_an_entrywise_product": (Hadamard(A, B)[0, 1] * C, B[0, 1] * A[0, 1] * C),
    "an_entry_of_a_diagonal": (Diagonal(u)[1, 1] * C, u[1] * C),
    "an_entry_of_an_identity": ((A + IN)[0, 0] * C, A[0, 0] * C + C),
    "an_entry_of_another_place_of_an_identity": ((A + IN)[0, 1] * C, A[0, 1] * C),
    "an_entry_of_a_sum_over_heads": (total(f(j), j, 1, n)[0, 1] * C, total(f(j)[0, 1] * C, j, 1, n)),
    "a_trace_turns_around": (Trace(A * B * C) * u, Trace(C * A * B) * u),
    "a_trace_of_a_transpose": (Trace(A * B) * u, Trace(A.T * B.T) * u),
    "a_trace_of_an_outer_product": (Trace(u * v.T) * C, (u.T * v)[0, 0] * C),
    "a_trace_is_linear": (Trace(A + 2 * B) * C, Trace(A) * C + 2 * Trace(B) * C),
    "a_trace_of_an_identity": (Trace(IN) * A, N * A),
    "a_trace_of_a_diagonal": (Trace(Diagonal(u)) * A, (one.T * u)[0, 0] * A),
    "a_trace_of_a_kronecker_product": (Trace(Kronecker(A, R)) * C, Trace(A) * Trace(R) * C),
    "a_trace_as_an_inner_product": (Trace(A * B) * C, (Vec(A.T).T * Vec(B))[0, 0] * C),
    # powers and floats
    "a_power_is_a_product": (A**3, A * A * A),
    "the_power_zero": (A**0 * B, B),
    "a_power_of_an_identity": (identity(N) ** 2, IN),
    "a_half": (0.5 * A, A / 2),
    "a_float_is_what_is_written": (0.1 * A + 0.2 * A, Rational(3, 10) * A),
    # ones
    "ones_are_counted": (one.T * one, N * Identity(1)),
    "the_mean_is_taken_once": ((identity(N) - one * one.T / N) ** 2, IN - one * one.T / N),
    "the_mean_of_what_has_none": (one.T * (identity(N) - one * one.T / N) * A, ZeroMatrix(1, N)),
    "ones_on_a_diagonal": (Diagonal(one), IN),
    "ones_entry_by_entry": (Hadamard(one * one_m.T, E), E),
    "ones_of_a_product": (Kronecker(one, one_m), ones(N * M)),
    "vec_of_ones": (Vec(one * one_m.T), ones(N * M)),
    "an_entry_of_ones": (one[0] * A, A),
    "a_row_sum": ((one.T * A)[0, 0] * C, (A.T * one)[0] * C),
    "a_sum_of_all_entries": ((one.T * E * one_m)[0, 0] * C, (Vec(E).T * ones(N * M))[0, 0] * C),
    "the_trace_of_an_identity": (Vec(IN).T * Vec(IN), N * Identity(1)),
    "ones_of_one_row": (ones(1) * u.T, u.T),
    "a_row_of_the_mean": (one.T * one * one.T * A, N * one.T * A),
    "a_telescope": (total(f(j + 1) - f(j), j, 1, n), f(n + 1) - f(1)),
    "two_terms_at_a_symbol": (total(f(j), j, s, s + 1), f(s) + f(s + 1)),
    "the_identity_entry_by_entry": (Hadamard(IN, IN), IN),
    "the_diagonal_of_a_transpose": (Hadamard(A, IN), Hadamard(IN, A.T)),
    "factors_multiply_out": ((A + B) * (A - B), A * A - A * B + B * A - B * B),
    "transposes_reverse": ((A * B * E).T, E.T * B.T * A.T),
    "vec_of_a_covector_with_a_matrix": (Vec(u.T * A), A.T * u),
    "a_transposed_vec": (Vec(A * E).T, Vec(E).T * Kronecker(A.T, IM)),
}

WRONG = {
    "inner_products_keep_their_vectors": (
        (u.T * v)[0, 0] * (w.T * z)[0, 0] * A, (u.T * z)[0, 0] * (w.T * v)[0, 0] * A,
    ),
    "scalars_have_names": (alpha * A, beta * A),
    "a_scalar_isnt_its_square": (alpha * A, alpha**2 * A),
    "a_scalar_in_an_activation": (sigma(alpha * u), alpha * sigma(u)),
    "a_scalar_in_two_factors": (Hadamard(alpha * A, alpha * B), alpha * Hadamard(A, B)),
    "a_root_isnt_linear": ((alpha + beta) ** -1 * A, A / alpha + A / beta),
    "a_scalar_of_another_head": (
        total(scalar("alpha", j) * f(j), j, 1, n), total(scalar("alpha", n) * f(j), j, 1, n),
    ),
    "entries_have_places": (A[0, 1] * B, A[1, 0] * B),
    "an_entry_of_another_matrix": (A[0, 0] * B, B[0, 0] * A),
    "an_entry_of_a_product_isnt_a_product": ((A * B)[0, 0] * C, A[0, 0] * B[0, 0] * C),
    "an_entry_off_the_diagonal": (Diagonal(u)[0, 1] * C, u[0] * C),
    "an_entry_of_an_activation": (sigma(u)[0] * C, sigma(u)[1] * C),
    "traces_dont_multiply": (Trace(A * B) * C, Trace(A) * Trace(B) * C),
    "a_trace_turned_the_wrong_way": (Trace(A * B * C) * u, Trace(A * C * B) * u),
    "a_trace_isnt_an_entry": (Trace(A) * C, A[0, 0] * C),
    "a_trace_with_one_transpose": (Trace(A * B) * C, Trace(A * B.T) * C),
    "a_power_of_a_sum": ((A + B) ** 2, A**2 + 2 * A * B + B**2),
    "a_power_isnt_entrywise": (A**2, Hadamard(A, A)),
    "a_small_float_counts": (0.5 * A + 1e-17 * A, 0.5 * A),
    "a_small_float_counts_transposed": (0.5 * A.T + 1e-17 * A.T, 0.5 * A.T),
    "a_small_float_counts_in_an_identity": (0.5 * identity(N) + 1e-17 * identity(N), 0.5 * identity(N)),
    "a_small_float_counts_in_a_power": (0.5 * A**2 + 1e-17 * A**2, 0.5 * A**2),
    "ones_after_a_vec_of_ones": (
        Vec(Diagonal(A * one)).T * ones(N * N) * ones(N * N).T * ones(N * N), N**2 * Identity(1),
    ),
    "ones_have_a_size": (one.T * one, M * Identity(1)),
    "ones_arent_an_identity": (one * one.T, IN),
    "ones_sum_rows_or_columns": ((one.T * A).T, A * one),
    "a_mean_isnt_a_sum": ((one * one.T) ** 2, one * one.T),
    "slopes_go_with_their_argument": (Hadamard(sigma(u), Activation(v, 1)), Hadamard(Activation(u, 1), sigma(v))),
    "the_trace_of_another_identity": (Vec(IN).T * Vec(IN), Vec(IM).T * Vec(IM)),
    "a_window_that_moves": (total(f(j), j, s, s + n), total(f(j), j, s + 1, s + n + 1)),
    "an_index_around_an_activation_isnt_the_one_in_it": (
        total(sigma(total(f(j - k) * h(k), k, 1, n)), j, 1, n),
        total(sigma(total(f(k - j) * h(k), k, 1, n)), j, 1, n),
    ),
    "diagonals_dont_pass_a_matrix": (Diagonal(u) * A, A * Diagonal(u)),
    "diag_of_a_product": (Diagonal(A * u), A * Diagonal(u)),
    "diag_of_a_matrix_times_a_vector": (Diagonal(A * u) * v, Diagonal(A * v) * u),
    "one_of_two_diagonals": (Diagonal(u) * Diagonal(v), Diagonal(u)),
    "another_diagonal": (Diagonal(u) * Diagonal(v) * A, Diagonal(u) * A * Diagonal(v)),
    "entrywise_isnt_the_product": (Hadamard(A, B), A * B),
    "entrywise_isnt_the_product_of_vectors": (Hadamard(u, v), Kronecker(u.T * v, u)),
    "entrywise_with_a_transpose": (Hadamard(A, B), Hadamard(A, B.T)),
    "entrywise_inside_a_product": (Hadamard(A * B, C), A * Hadamard(B, C)),
    "entrywise_of_products": (Hadamard(A * B, C * D), Hadamard(A, C) * Hadamard(B, D)),
    "entrywise_twice_the_same": (Hadamard(Hadamard(u, v), v), Hadamard(u, v)),
    "an_entrywise_square": (Hadamard(u, u), Hadamard(u, v)),
    "an_entrywise_product_transposed_once": (Hadamard(E, F).T, Hadamard(F, E + F).T),
    "vec_of_an_entrywise_product_with_one_vec": (Vec(Hadamard(E, F)), Diagonal(Vec(E)) * Vec(E)),
    "rows_scaled_for_columns": (Diagonal(u) * A, Hadamard(A, v * u.T)),
    "the_identity_entry_by_entry_is_no_identity": (Hadamard(A, IN), A),
    "the_identity_in_an_entrywise_product": (Hadamard(A, IN) * B, Hadamard(B, IN) * A),
    "kronecker_doesnt_commute": (Kronecker(A, B), Kronecker(B, A)),
    "kronecker_with_factors_swapped": (Kronecker(A, R) * Kronecker(B, S), Kronecker(B * A, R * S)),
    "kronecker_with_one_factor_swapped": (Kronecker(A, R) * Kronecker(B, S), Kronecker(A * B, S * R)),
    "kronecker_grouped_with_a_swap": (Kronecker(Kronecker(A, B), C), Kronecker(A, Kronecker(C, B))),
    "kronecker_transposed_and_reversed": (Kronecker(A, B).T, Kronecker(B.T, A.T)),
    "kronecker_isnt_the_product": (Kronecker(A, IN) * Kronecker(B, IN), Kronecker(A, B)),
    "kronecker_adds_once": (Kronecker(A + B, R), Kronecker(A, R) + Kronecker(B, S)),
    "kronecker_factors_on_one_side": (Kronecker(A, IN) * Kronecker(B, IN), Kronecker(B, IN) * Kronecker(A, IN)),
    "an_identity_on_the_other_side": (Kronecker(A, IN), Kronecker(IN, A)),
    "a_matrix_beside_a_large_one": (Kronecker(A, IM) * Y, Y * Kronecker(A, IM)),
    "an_entrywise_kronecker": (Hadamard(Kronecker(A, R), Kronecker(B, S)), Kronecker(A * B, R * S)),
    "sizes_in_the_other_order": (Kronecker(A, IM) * q, Kronecker(IM, A) * q),
    "vec_by_columns": (Vec(A * E), Kronecker(IM, A) * Vec(E)),
    "vec_without_the_transpose": (Vec(E * R), Kronecker(IN, R) * Vec(E)),
    "vec_of_three_with_a_transpose_too_many": (Vec(A * E * R), Kronecker(A.T, R.T) * Vec(E)),
    "vec_of_a_transpose": (Vec(A), Vec(A.T)),
    "vec_of_an_outer_product": (Vec(u * v.T), Kronecker(v, u)),
    "attention_at_its_keys": (Vec(A * B.T * C), Kronecker(A, C.T) * Vec(B)),
    "attention_at_its_queries": (Vec(A * B.T * C), Kronecker(IN, B.T * C) * Vec(A)),
    "attention_with_keys_for_queries": (Vec(Q * K.T * V), Kronecker(K * Q.T, IM) * Vec(V)),
    "an_inner_product_of_other_matrices": (Vec(E).T * Vec(A * F), Vec(A * E).T * Vec(F)),
    "a_bilinear_form_isnt_symmetric": (u.T * A * v, v.T * A * u),
    "a_number_with_another_vector": ((u.T * v) * (w.T * z), (u.T * w) * (v.T * z)),
    "a_number_squared_is_no_fourth_power": ((u.T * v) * (u.T * v), (u.T * u) * (v.T * v)),
    "an_outer_product_isnt_symmetric": (u * v.T, v * u.T),
    "a_number_on_another_matrix": (Kronecker(u.T * v, A), Kronecker(u.T * u, A)),
    "factors_dont_commute": (A * B, B * A),
    "three_factors_dont_rotate": (A * B * C, C * A * B),
    "a_transpose_isnt_the_matrix": (A.T * B, A * B),
    "a_transpose_keeps_the_order": ((A * B).T, A.T * B.T),
    "signs_matter": (A - B, A + B),
    "coefficients_matter": (2 * A + B, A + 2 * B),
    "an_activation_isnt_linear": (sigma(u + v), sigma(u) + sigma(v)),
    "an_activation_isnt_homogeneous": (sigma(2 * u), 2 * sigma(u)),
    "an_activation_keeps_its_matrix_inside": (sigma(A * u), A * sigma(u)),
    "an_activation_of_zero": (sigma(u - u), ZeroMatrix(N, 1)),
    "an_activation_isnt_its_slope": (sigma(u), Activation(u, 1)),
    "an_activation_of_another_name": (sigma(u), Activation(u, 0, "τ")),
    "an_activation_isnt_symmetric": (sigma(A), sigma(A).T),
    "an_activation_of_an_entrywise_product": (sigma(Hadamard(u, v)), Hadamard(sigma(u), sigma(v))),
    "an_activation_of_a_sum_of_layers": (sigma(total(h(j), j, 1, 2)), total(sigma(h(j)), j, 1, 2)),
    "an_activation_of_a_symbolic_sum": (sigma(total(h(j), j, 1, n)), total(sigma(h(j)), j, 1, n)),
    "bounds_matter": (total(f(j), j, 1, n), total(f(j), j, 1, n + 1)),
    "a_first_bound_matters": (total(f(j), j, 0, n), total(f(j), j, 1, n)),
    "a_wrong_last_term": (total(f(j), j, 1, n + 1), total(f(j), j, 1, n) + f(n)),
    "a_wrong_shift": (total(f(j + 1), j, 1, n), total(f(j), j, 1, n + 1)),
    "a_split_that_counts_a_term_twice": (
        total(f(j), j, 1, n + m), total(f(j), j, 1, n) + total(f(j), j, n, n + m),
    ),
    "a_split_beyond_the_end": (total(f(j), j, 1, n), total(f(j), j, 1, m) + total(f(j), j, m + 1, n)),
    "a_last_term_of_a_sum_that_may_be_empty": (total(f(j), j, 1, s + 1), total(f(j), j, 1, s) + f(s + 1)),
    "a_last_term_of_a_sum_from_two": (total(f(j), j, 2, n + 1), total(f(j), j, 2, n) + f(n + 1)),
    "a_first_term_that_may_not_be_there": (total(f(j), j, 1, n), f(1) + total(f(j), j, 2, n)),
    "a_count_that_may_be_negative": (total(A, j, 1, s), s * A),
    "a_product_of_sums_isnt_a_sum_of_products": (
        total(f(j), j, 1, n) * total(g(j), j, 1, n), total(f(j) * g(j), j, 1, n),
    ),
    "sums_dont_commute": (total(f(j), j, 1, n) * total(g(j), j, 1, n), total(g(j), j, 1, n) * total(f(j), j, 1, n)),
    "bounds_go_with_their_index": (
        total(total(f(j, k), k, 1, m), j, 1, n), total(total(f(j, k), k, 1, n), j, 1, m),
    ),
    "indices_go_with_their_sum": (
        total(total(f(j, k), k, 1, n), j, 1, n), total(total(f(j, j), k, 1, n), j, 1, n),
    ),
    "indices_keep_their_places": (
        total(total(f(j, k) * g(j, k), k, 1, n), j, 1, n), total(total(f(j, k) * g(k, j), k, 1, n), j, 1, n),
    ),
    "a_triangle_isnt_a_square": (
        total(total(f(j, k), k, 1, j), j, 1, n), total(total(f(j, k), k, 1, n), j, 1, n),
    ),
    "a_difference_of_indices_has_a_sign": (
        total(total(f(j - k) * g(j), k, 1, n), j, 1, n), total(total(f(k - j) * g(j), k, 1, n), j, 1, n),
    ),
    "an_activation_keeps_the_index_around_it": (
        total(f(j) * sigma(g(j) * u), j, 1, n), total(f(j) * sigma(total(g(k), k, 1, n) * u), j, 1, n),
    ),
    "activations_of_two_indices_with_one": (
        total(total(sigma(f(j) * h(k)), k, 1, n), j, 1, n), total(total(sigma(f(j) * h(j)), k, 1, n), j, 1, n),
    ),
    "coefficients_inside_an_activation_go_with_their_index": (
        total(sigma(j * u), j, 1, n) + total(f(j) * u, j, 1, n), total(sigma(n * u) + f(j) * u, j, 1, n),
    ),
    "what_doesnt_move_is_counted_once_too_often": (total(A, j, 0, n), n * A),
    # a function of its own in every layer
    "functions_of_two_layers": (sigma(u, 1), sigma(u, 2)),
    "functions_of_two_layers_at_zero": (sigma(0 * u, 1), sigma(0 * u, 2)),
    "a_function_of_a_layer_and_of_all": (sigma(0 * u, 1), sigma(0 * u)),
    "slopes_of_two_layers": (Activation(u, 1, lower=(1,)), Activation(u, 1, lower=(2,))),
    "functions_of_the_layer_and_the_next": (sigma(u, i), sigma(u, i + 1)),
    "functions_of_two_symbolic_layers": (sigma(u, i), sigma(u, k)),
    "a_function_of_each_layer_isnt_that_of_one": (total(sigma(u, j), j, 1, n), total(sigma(u, 1), j, 1, n)),
    "nor_at_zero": (total(sigma(0 * u, j), j, 1, n), n * sigma(0 * u, 1)),
    "nor_shifted": (total(sigma(0 * u, j), j, 1, n), total(sigma(0 * u, j + 1), j, 1, n)),
    "nor_that_of_the_last": (total(sigma(0 * u, j), j, 1, n), total(sigma(0 * u, n), j, 1, n)),
    "one_index_for_two_functions": (
        total(total(Hadamard(sigma(u, j), sigma(v, k)), j, 1, n), k, 1, n),
        total(total(Hadamard(sigma(u, j), sigma(v, j)), j, 1, n), k, 1, n),
    ),
    "a_functions_index_isnt_its_arguments": (
        total(total(sigma(h(k), j), j, 1, n), k, 1, m), total(total(sigma(h(j), k), j, 1, n), k, 1, m)
    ),
    "the_outer_function_isnt_the_inner_one": (
        total(total(sigma(A * sigma(0 * u, k), j), k, 1, m), j, 1, n),
        total(total(sigma(A * sigma(0 * u, j), k), k, 1, m), j, 1, n),
    ),
    "a_function_moves_with_its_factor": (total(f(j) * sigma(u, j), j, 1, n), total(f(j), j, 1, n) * sigma(u, n)),
}  # fmt: skip
