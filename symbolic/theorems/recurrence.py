"""Derive the matrix of a recurrence over tokens with held gates, such as a state space layer or linear attention."""

from typing import Any

from sympy import Identity, Integer, MatrixExpr, Symbol, Transpose, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.expressions.constructors import hadamard, kronecker, sizes, vec
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter, Variable, i, j
from symbolic.expressions.scalar import Entry
from symbolic.proof.derivation import Derivation
from symbolic.proof.hypotheses import HELD
from symbolic.proof.induction import claim
from symbolic.proof.step import Hypothesis, Step, equality, let_each
from symbolic.theorems.memory import carried as carried_text
from symbolic.theorems.memory import crossings, path_of_text
from symbolic.theorems.stream_stack import StreamStack

FEATURES, STATE = sizes("M p")

k = Symbol("k", integer=True, nonnegative=True)


def A(n: Any) -> Parameter:
    """Return `A_n`, which carries the state to token n."""
    return Parameter("A", (n,), STATE, STATE)


def B(n: Any) -> Parameter:
    """Return `B_n`, which writes token n into the state."""
    return Parameter("B", (n,), STATE, FEATURES)


def C(n: Any) -> Parameter:
    """Return `C_n`, which reads the state at token n."""
    return Parameter("C", (n,), FEATURES, STATE)


def D(n: Any) -> Parameter:
    """Return `D_n`, which passes token n by the state."""
    return Parameter("D", (n,), FEATURES, FEATURES)


def vector(letter: str, n: Any) -> Parameter:
    """Return the state `h_n`, or the input `u_n` or the output `y_n` of token n."""
    return Parameter(letter, (n,), STATE if letter == "h" else FEATURES, 1)


def carried(n: Any, to: Any) -> Parameter:
    """Return `Φ_n^{(to)}`, which carries the state from token n to a later one."""
    return Parameter("Phi", (n,), STATE, STATE, (to,))


def W(row: Any, column: Any) -> Parameter:
    """Return `W'_{row,column}`, the block that takes the input of one token to the output of another."""
    return Parameter("W'", (row, column), FEATURES, FEATURES)


LAYER = (
    Definition(vector("h", 0), ZeroMatrix(STATE, 1)),
    Definition(vector("h", i + 1), A(i + 1) * vector("h", i) + B(i + 1) * vector("u", i + 1), (i,)),
    Definition(vector("y", i + 1), C(i + 1) * vector("h", i + 1) + D(i + 1) * vector("u", i + 1), (i,)),
)
"""The recurrence, and its output."""

PATH = (
    Definition(carried(i, i), Identity(STATE), (i,)),
    Definition(carried(j, i + 1), A(i + 1) * carried(j, i), (i, j), ((j, i),)),
)
"""The recursion of `Φ`."""

BLOCKS = (
    Definition(W(i, i), C(i) * B(i) + D(i), (i,), ((Integer(1), i),)),
    Definition(W(i + 1, j), C(i + 1) * carried(j, i + 1) * B(j), (i, j), ((j, i),)),
    Definition(W(j, i + 1), ZeroMatrix(FEATURES, FEATURES), (i, j), ((j, i),)),
)
"""The blocks of `W'`: on the diagonal, below it and above it."""


_WORDS = {
    "h": "the state after token i",
    "u": "the input of the recurrence at token i",
    "y": "the output of the recurrence at token i",
    "A": "the matrix that carries the state to token i, held",
    "B": "the matrix that writes token i into the state, held",
    "C": "the matrix that reads the state at token i, held",
    "D": "the matrix that takes token i past the state, held",
    "Phi": "the matrix that carries the state from token j to token i",
    "W'": "the block of W' from the input of one token, the last index, to the output of token i",
    "V": "a matrix on the right of W', the same at every token",
    "O": "a matrix on the left of W', the same at every token",
}


def _premises(words: str, layer: tuple[Definition, ...]) -> tuple[Hypothesis, ...]:
    """Return equations behind a sentence that introduces them, and that parameters are held."""
    return *(Step(d.left, d.right, "" if n else words, None) for n, d in enumerate(layer)), HELD


def recurrence(path: tuple[Definition, ...] = PATH, blocks: tuple[Definition, ...] = BLOCKS) -> Derivation:
    """Derive `y_i = Σ_j W'_{i,j} u_j`, the blocks of `W'`, and their factors through the state, for every token.

    Args:
        path: the recursion of `Φ`.
        blocks: the blocks of `W'`.

    Example:
        >>> recurrence().verified
        True
    """
    n, row = i + 1, i + j + k + 1
    states = IndexedSum(carried(j, i) * B(j) * vector("u", j), j, 1, i)
    state = Definition(vector("h", i), states)
    split = Definition(carried(j, i + j + k), carried(j + k, i + j + k) * carried(j, j + k))
    following = Definition(*(side.xreplace({i: n}) for side in (split.left, split.right)))
    by, ranges = "by the recursions", "i + 1 ≥ 1, j ≥ 1, k ≥ 0"
    first, second = C(row) * carried(j + k, row), carried(j, j + k) * B(j)
    right, left = (Parameter(letter, (), FEATURES, FEATURES) for letter in "VO")
    steps = (
        *claim(state, "h_0 = 0, and the sum is empty", f"{by} and the equation of the state", *LAYER, *path),
        equality(
            vector("y", n),
            IndexedSum(W(n, j) * vector("u", j), j, 1, n),
            f"{by} and the equation of the output",
            (state, *LAYER, *path, *blocks),
        ),
        *claim(split, by, by, *path, where="1 ≤ j"),
        equality(W(row, j), first * second, f"{by} and the claim on Φ, for {ranges}", (following, *blocks)),
        equality(
            left * W(row, j) * right,
            (left * first) * (second * right),
            f"the same with a matrix on either side, for {ranges}",
            (following, *blocks),
        ),
    )
    remark = (
        "A block of a row after any one token and of a column up to it is a factor of its row times a factor of its"
        " column, through the p numbers of the state: the matrix of all these blocks has rank at most p."
    )
    return Derivation(
        "A recurrence over tokens",
        steps,
        remark,
        given=let_each(*path, *blocks),
        premises=_premises("A recurrence over tokens writes each token into a state and reads it", LAYER),
        words=_WORDS,
        counts="token",
    )


def order_of_layers() -> Derivation:
    """Derive what later tokens read of earlier ones through the states of several layers, on the linear path.

    Example:
        >>> order_of_layers().verified
        True
    """
    # Stream 1 has the tokens up to one, stream 2 those after it: it is a stack whose memory are the earlier tokens.
    s = StreamStack(neurons=(), couplings=(), absent=(("U", 1, 2),))
    rules, path = [r for r in s.recursions if r.left.letter == "P"], path_of_text(s)

    def factors(n: Any) -> MatrixExpr:
        return Parameter("X", (n,), s.widths[1], STATE) * Parameter("Y", (n,), STATE, s.widths[0])

    block = Definition(s.U(i, 2, 1), factors(i), (i,))
    crossing = Definition(s.P(i, 2, 1), crossings(s, i))
    through = IndexedSum(carried_text(s, j, i) * factors(j) * s.P(j - 1, 1, 1), j, 1, i)
    by = "by the recursions"
    steps = (
        *claim(Definition(s.P(i, 1, 2), ZeroMatrix(*s.P(i, 1, 2).shape)), by, by, *rules),
        *claim(crossing, by, by, *rules, *path),
        equality(s.P(i, 2, 1), through, "through the states of all layers", (crossing, block)),
    )
    remark = (
        "Every summand is a product through the p numbers of the state of one layer: the rank of P_{i,2,1} is at most"
        " i p. An activation, such as that of an MLP, is no part of P, and adds nothing to it."
    )
    words = (
        "Stream 1 has the tokens up to any one, and stream 2 has those after it; a layer is a recurrence over tokens"
    )
    first, *rest = s.premises(words)
    factored = Step(
        block.left,
        block.right,
        "The block of its matrix from earlier to later tokens is a product through its state",
        None,
    )
    return Derivation(
        "Layers of recurrences",
        steps,
        remark,
        given=let_each(*rules, *path),
        premises=(first, *rest[:-1], factored, rest[-1]),
        words={
            **s.words,
            "Phi": "the matrix that carries the later tokens from layer j to layer i on the linear path",
            "X": "the factor of later tokens in layer i",
            "Y": "the factor of earlier tokens in layer i",
        },
    )


def one_decay() -> Derivation:
    """Derive the matrix of linear attention whose state decays by one number at each token.

    Example:
        >>> one_decay().verified
        True
    """

    def number(letter: str, n: Any, upper: Any = ()) -> Parameter:
        return Parameter(letter, (n,), 1, 1, upper)

    def decay(n: Any, to: Any) -> Entry:
        return Entry(number("lambda", n, (to,)), 0, 0)

    def S(n: Any) -> Parameter:
        return Parameter("S", (n,), STATE, FEATURES)

    def of_state(letter: str, n: Any) -> Parameter:
        return Parameter(letter, (n,), STATE, 1)

    n, V = i + 1, Parameter("V", (), FEATURES, FEATURES)
    written = of_state("b", n) * (Transpose(vector("u", n)) * V)
    layer = (
        Definition(S(0), ZeroMatrix(STATE, FEATURES)),
        Definition(S(n), Entry(number("a", n), 0, 0) * S(i) + written, (i,)),
        Definition(vector("y", n), Transpose(S(n)) * of_state("c", n), (i,)),
    )
    decays = (
        Definition(number("lambda", i, (i,)), Identity(1), (i,)),
        Definition(number("lambda", j, (n,)), number("a", n) * number("lambda", j, (i,)), (i, j), ((j, i),)),
    )
    state = Definition(S(i), IndexedSum(decay(j, i) * of_state("b", j) * (Transpose(vector("u", j)) * V), j, 1, i))
    read = Transpose(V) * vector("u", j) * (Transpose(of_state("b", j)) * of_state("c", n))
    (tokens,) = sizes("N")
    rows = [Parameter(letter, (), tokens, STATE) for letter in "CB"]
    of_pairs = Parameter("Lambda", (), tokens, tokens)
    pattern = hadamard(rows[0] * Transpose(rows[1]), of_pairs)
    entries = (
        Step(Entry(of_pairs, i - 1, j - 1), decay(j, i), "definition, for 1 ≤ j ≤ i", None, ":="),
        Step(Entry(of_pairs, i - 1, j - 1), Integer(0), "definition, for j > i", None, ":="),
    )
    data = Variable("u", (), tokens, FEATURES)
    by = "by the recursions"
    steps = (
        *claim(state, "S_0 = 0, and the sum is empty", f"{by} and the equation of the state", *layer, *decays),
        equality(
            vector("y", n),
            IndexedSum(decay(j, n) * read, j, 1, n),
            f"{by} and the equation of the output",
            (state, *layer, *decays),
        ),
        equality(vec(pattern * data * V), kronecker(pattern, Transpose(V)) * vec(data), "all tokens at once"),
    )
    remark = (
        "The rows of C, B and u are those of all tokens, and an entry of Λ is the decay from the token of its column to"
        " that of its row: so W' is that of attention with the pattern C B^T ⊙ Λ."
    )
    return Derivation(
        "Linear attention with one decay",
        steps,
        remark,
        given=(*let_each(*decays), *entries),
        premises=_premises(
            "The state decays by one number at each token, and every token writes its values into it", layer
        ),
        words={
            "S": "the state after token i",
            "u": "the input at token i; without an index, those of all tokens in rows",
            "y": "the output at token i",
            "V": "the matrix for the values",
            "a": "the decay at token i, held",
            "b": "the direction that token i writes to, held",
            "c": "the direction that token i reads from, held",
            "lambda": "the decays from token j to token i, multiplied",
            "B": "the directions b of all tokens in rows",
            "C": "the directions c of all tokens in rows",
            "Lambda": "the decays of all pairs of tokens",
        },
        counts="token",
    )
