"""Derive how attention changes between two inputs: its pattern with its scores, and its output with both."""

from collections.abc import Sequence

from sympy import Expr, Identity, ImmutableMatrix, S, ZeroMatrix, cancel, exp, factor, log, symbols

from symbolic.equality.definition import Definition
from symbolic.equality.two_inputs import at_second_input, change, difference_of, mean_of, midpoint, moves, second_value
from symbolic.expressions.activation import Activation
from symbolic.expressions.operations import Diagonal, Kronecker, Vec
from symbolic.expressions.parameter import Ones, Parameter, Variable
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Equation, Step, continued, equality, let, suppose
from symbolic.vectorisation.entries import check_sizes, matrix


def softmax_secant(means: Sequence[Expr]) -> ImmutableMatrix:
    """Return the matrix that takes the change of a row's scores to the change of its pattern.

    Example:
        >>> softmax_secant(symbols("a b"))[0, 1].factor()
        -a*b/(a + b)
    """
    # `diag(L) − L Lᵀ / ΣL`, where `L = Δp / Δlog p` are the logarithmic means of the pattern's entries at both inputs.
    column = ImmutableMatrix(means)
    return ImmutableMatrix.diag(*means) - column * column.T / sum(means)


def softmax_moves_by_its_secant(keys: int) -> bool:
    """Tell, entry by entry and for symbols, whether `softmax(s) − softmax(r)` is the secant's matrix times `s − r`."""
    check_sizes(keys=keys)
    s, r = (matrix(letter, keys, 1) for letter in "sr")
    totals = [sum(scores.applyfunc(exp)) for scores in (s, r)]
    moved = s.applyfunc(exp) / totals[0] - r.applyfunc(exp) / totals[1]
    logarithms = s - r - (log(totals[0]) - log(totals[1])) * ImmutableMatrix.ones(keys, 1)
    # A row of one entry is 1 at both inputs, and so is their mean.
    means = [S.One] if keys == 1 else [moved[k] / logarithms[k] for k in range(keys)]
    names = symbols(f"L1:{keys + 1}")
    secant = (sum(names) * softmax_secant(names)).applyfunc(cancel).subs(dict(zip(names, means, strict=True)))
    error = sum(means) * moved - secant * (s - r)
    return all(entry.together().as_numer_denom()[0].expand() == 0 for entry in error)


def attention_difference(keys: int = 3) -> Derivation:
    """Derive how attention's output moves between two inputs, `Δ(H v) = H̄ Δv + ΔH v̄`, with `ΔH` linear in the scores.

    Example:
        >>> attention_difference().verified
        True
    """
    # For a row of the pattern `p = softmax(s)`, `Δp = diag(L) (Δs − ΣLΔs / ΣL)`: the secant of the exponential between
    # `log p` and `log p̃` is the logarithmic mean `L = Δp / Δlog p`, and the row sums to one at both inputs.
    check_sizes(keys=keys)
    n, m, size = symbols("N M m", integer=True, positive=True)
    ones, unit = Ones("1", (), n, 1), Identity(1)
    s, log_p, p, mean = (Parameter(letter, (), n, 1) for letter in ("s", "l", "p", "L"))
    log_total, total, inverse = (Parameter(letter, (), 1, 1) for letter in ("z", "r", "w"))
    row = (
        Definition(log_p, s - ones * log_total),
        Definition(p, Activation(log_p, 0, "exp")),
        Definition(total, ones.T * p),
    )
    second_row = tuple(Definition(second_value(rule.left), at_second_input(rule.right)) for rule in row)
    known = (*moves(s, log_p, p, log_total, total), *row, *second_row)
    sums_to_one = (Definition(total, unit), Definition(second_value(total), unit))
    weights = Diagonal(mean)
    logarithms = Definition(change(log_p), change(s) - ones * change(log_total))
    means = Definition(change(p), weights * change(log_p))
    divided = Definition(change(log_total), inverse * ones.T * weights * change(s))
    secant = Definition(Parameter("S", (), n, n), weights - weights * ones * inverse * ones.T * weights)
    queries, keys_, pattern = Parameter("Q", (), n, size), Parameter("K", (), n, size), Parameter("H", (), n, n)
    x, value = Variable("x", (), n, m), Parameter("W", ("VO",), m, m)
    output = midpoint(pattern) * change(x) * value + change(pattern) * midpoint(x) * value
    on_vec = Kronecker(midpoint(pattern), value.T), Kronecker(change(pattern), value.T)
    of_output = (queries, keys_, pattern, x)
    nothing, apart = ZeroMatrix(1, 1), divided.right - divided.left
    no_change = Definition(ones.T * change(p), nothing)
    inverse_of_sum = Definition(inverse * ones.T * weights * ones, unit)
    both = inverse * ones.T * change(p) + (inverse_of_sum.left - unit) * divided.left
    vanishing = (
        equality(apart, both, "the means and the logarithms put in", (means, logarithms)),
        continued(both, nothing, "and both summands are zero", (no_change, inverse_of_sum)),
    )
    vanished = all(step.verified for step in vanishing)
    steps = (
        let(
            change(s),
            difference_of(s),
            "likewise for every other letter",
            (*known, *moves(*of_output)),
        ),
        let(midpoint(s), mean_of(s), "likewise for every other letter"),
        let(log_p, row[0].right, "a row of the pattern, in logarithms: z is that of the sum of exponentials"),
        let(p, row[1].right, "the row"),
        let(total, row[2].right, "as its sum, and all three likewise at the other input", second_row),
        suppose(total, unit, "assumption: this is what z is for, at both inputs", sums_to_one),
        equality(logarithms.left, logarithms.right, "the change of the logarithms", known),
        suppose(means.left, means.right, "assumption: L are the slopes of the secants of exp, the logarithmic means"),
        equality(change(total), ones.T * change(p), "the change of the row's sum", known),
        equality(
            change(total),
            ZeroMatrix(1, 1),
            "which is zero, since the sum is 1 at both inputs",
            (*sums_to_one, *moves(total)),
        ),
        equality(
            no_change.left,
            nothing,
            "so the change of the row sums to zero",
            (Definition(no_change.left, change(total)), Definition(change(total), nothing)),
        ),
        suppose(inverse_of_sum.left, unit, "assumption: w is one over the sum of L, all positive"),
        *vanishing,
        Step(divided.left, divided.right, "so this is the change of z", vanished, using=(Equation(apart, nothing),)),
        let(secant.left, secant.right, "the secant's matrix"),
        equality(change(p), secant.left * change(s), "the change of the pattern", (means, logarithms, divided, secant)),
        Step(
            Parameter("S", (), keys, keys),
            softmax_secant(symbols(f"L_1:{keys + 1}")).applyfunc(factor),
            f"for {keys} keys, compared with softmax entry by entry",
            softmax_moves_by_its_secant(keys),
        ),
        equality(
            difference_of(queries * keys_.T),
            midpoint(queries) * change(keys_).T + change(queries) * midpoint(keys_).T,
            "the change of the scores",
            moves(queries, keys_),
        ),
        equality(difference_of(pattern * x) * value, output, "the change of the output", moves(pattern, x)),
        equality(Vec(output), on_vec[0] * Vec(change(x)) + on_vec[1] * Vec(midpoint(x)), "on x', by the change of A'"),
    )
    remark = (
        "With several heads, their outputs are added. The factor of the scores and a mask are the same at both inputs."
    )
    words = {"exp": "the exponential function, entry by entry"}
    premises = (
        "Nothing is held: H, Q, K and x may be others at the other input, which a tilde marks; the matrices W stay.",
        "A row of the pattern is the softmax of a row s of scores.",
    )
    return Derivation("Attention between two inputs", steps, remark, premises=premises, words=words)
