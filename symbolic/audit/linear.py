"""Decide the claims about linear maps and the MLP in matrix-vector form: Eq. 3, 5 and 6."""

from sympy import Identity, MatrixExpr

from symbolic.audit.checks import both, derived, every, expect, independent
from symbolic.audit.claim import Checks, Claim
from symbolic.audit.counterexample import Outcome, identity
from symbolic.audit.formula import read
from symbolic.audit.heads import M, N, X
from symbolic.audit.letters import Notation, applied, table
from symbolic.equality.definition import Definition
from symbolic.expressions.operations import Kronecker, Vec
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.vectorisation.linear import linear_derivation, linear_on_features, linear_on_rows, mlp_derivation

_SMALL = ((1, 2), (2, 2), (3, 2), (2, 4))  # tokens, features

ROWS, _COLUMNS = Parameter("W", (), N, N), Parameter("V", (), M, M)

_Y = Variable("y", (), N, M)


def _general_map(claim: Claim) -> Outcome:
    """Decide Eq. 3 for both linear orientations, `W x` and `x W`."""
    y, transformed, y_vector, image = claim.row.related("=", r"\mapsto", "=")
    expect((y, y_vector) == (_Y, Vec(_Y)), "y and y'")
    expect(transformed == applied("T")(X, ROWS), "T(x | W)")
    outcomes = []
    for value, matrix in (
        (ROWS * X, Kronecker(ROWS, Identity(M))),
        (X * _COLUMNS, Kronecker(Identity(N), _COLUMNS.T)),
    ):
        outcomes.append(identity(Vec(value), image, [Definition(Parameter("W'", (), N * M, N * M), matrix)]))
    good = all(f(n, m).agree for f in (linear_on_rows, linear_on_features) for n, m in _SMALL)
    entry = Outcome(good, "W' read off entry by entry for both linear orientations")
    return both(*outcomes, entry)


def _eq_5(claim: Claim) -> Outcome:
    """Decide Eq. 5: with `x_{i+1}` as the left side defines it, the right side is `vec(x_{i+1})`."""
    following, value, vector, image = claim.row.related("=", r"\mapsto", "=")
    expect(following == _X2, "x_{i+1}")
    let = Definition(following, value)
    return both(
        identity(vector, image, [let]),
        identity(Vec(following), vector, [let]),
        derived(linear_derivation(2, 3), "W' = W ⊗ I_M for all sizes, and entry by entry"),
    )


_X1, _X2 = Variable("x", ("i",), N, M), Variable("x", ("i+1",), N, M)


def linear_layer(primed: MatrixExpr) -> Notation:
    """Return the notation of Eq. 5."""
    return table({"x_i": _X1, "x_i+1": _X2, "W_i": ROWS, "x'_i": Vec(_X1), "x'_i+1": Vec(_X2), "W'_i": primed})


_W = [Parameter("W", (k,), N, N) for k in (1, 2)]

_V = [Parameter("V", (k,), M, M) for k in (1, 2)]  # the same on features

_BIASES = [Variable("b", (k,), N, M) for k in (1, 2)]

_ON_FEATURES = [Parameter("b", (k,), M, 1) for k in (1, 2)]

_ONES = Parameter("1", ("N",), N, 1)

_PRIMED = {f"W'_{k}": Parameter("W'", (k,), N * M, N * M) for k in (1, 2)}

_PRIMED |= {f"b'_{k}": Parameter("b'", (k,), N * M, 1) for k in (1, 2)}

_FFN = {"FFN": applied("FFN")}

_NAMES = {
    "x": X,
    "x'": Vec(X),
    "1": _ONES,
    "W'_k": _PRIMED["W'_1"],
    "W_k": _V[0],
    "I_N": Identity(N),
    **_PRIMED,
}

_MLP = table(
    {**_NAMES, "W_1": _W[0], "W_2": _W[1], "b_1": _BIASES[0], "b_2": _BIASES[1]},
    functions=_FFN,
)

_FEATURES = table(
    {**_NAMES, "W_1": _V[0], "W_2": _V[1], "b_1": _ON_FEATURES[0], "b_2": _ON_FEATURES[1]}, functions=_FFN
)


def _mixes_tokens(claim: Claim) -> Outcome:
    rows, features = linear_on_rows(2, 2).matrix, linear_on_features(2, 2).matrix
    crossing = [any(m[r, c] != 0 for r in (0, 1) for c in (2, 3)) for m in (rows, features)]
    return Outcome(
        crossing[0] == crossing[1],
        f"with W of N × N, token 1 of W x contains {rows[0, 2]} times token 2; a Transformer's MLP acts on each"
        " token alone",
    )


def mlp_in_matrix_vector_form() -> Outcome:
    """Decide the matrix-vector form of the MLP."""
    return derived(mlp_derivation(), "the matrix-vector form of the MLP in both orientations")


def _primed_on_rows(claim: Claim) -> Outcome:
    """Decide the mapping to primed symbols as printed, with `W' = W ⊗ I_M` and `b' = vec(b)`."""
    name, value, image = claim.row.related("=", r"\mapsto")
    expect(name == applied("FFN")(X), "FFN(x)")
    meaning = [Definition(_PRIMED[f"W'_{k + 1}"], Kronecker(w, Identity(M))) for k, w in enumerate(_W)]
    meaning += [Definition(_PRIMED[f"b'_{k + 1}"], Vec(b)) for k, b in enumerate(_BIASES)]
    return identity(Vec(value), image, meaning)


def _primed_on_features(claim: Claim) -> Outcome:
    """Compare the printed primed side with the corrected FFN, its `W'_k` corrected and `b' = 1 ⊗ b`."""
    corrected, primed = read(claim.corrected, _FEATURES)
    name, value = corrected.equated
    expect(name == applied("FFN")(X) and primed.equated[0] == _PRIMED["W'_1"], "FFN(x), and W'_k")
    each = primed.equated[1]
    meaning = [Definition(_PRIMED[f"W'_{k + 1}"], each.xreplace({_V[0]: v})) for k, v in enumerate(_V)]
    meaning += [Definition(_PRIMED[f"b'_{k + 1}"], Kronecker(_ONES, b)) for k, b in enumerate(_ON_FEATURES)]
    return identity(Vec(value), read(claim.printed, _MLP)[0].related("=", r"\mapsto")[2], meaning)


_mlp_both_ways = every(_primed_on_rows, _primed_on_features, independent(mlp_in_matrix_vector_form))


CHECKS = {
    "3": Checks(
        _general_map,
        notation=table(
            {"y": _Y, "y'": Vec(_Y), "x": X, "x'": Vec(X), "W": ROWS, "W'": Parameter("W'", (), N * M, N * M)},
            functions={"T": applied("T")},
        ),
    ),
    "5": Checks(_eq_5, notation=linear_layer(Kronecker(ROWS, Identity(M)))),
    "6": Checks(_mixes_tokens, (_mlp_both_ways,), _primed_on_features, _MLP),
}
