"""Derive the form of a text beside a memory that doesn't read it, such as a decoder beside its encoder."""

from typing import Any

from sympy import Identity, Symbol, ZeroMatrix

from symbolic.equality.definition import Definition
from symbolic.expressions.constructors import kronecker, matrix, sizes, summed, vec
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.parameter import Parameter, Variable, i, j
from symbolic.proof.derivation import Derivation
from symbolic.proof.induction import claim
from symbolic.proof.step import equality, equations, let_each, suppose
from symbolic.theorems.stream_stack import StreamStack

M, T = 1, 2  # the streams of the memory and of the text, and the terms of each

STACK = StreamStack(absent=(("U", M, T), ("F", M, T), ("G", M, T)))
"""A memory and a text, with a term of each: the memory and its term read nothing of the text."""

_k = Symbol("k", integer=True, nonnegative=True)  # the layer in which the text reads the memory

_PATH = "the matrix that carries the text from layer j to layer i on the linear path"


def carried(s: StreamStack, k: Any, layer: Any) -> Parameter:
    """Return `Φ_k^{(layer)}`, which carries the text from layer k to a later layer on the linear path."""
    return Parameter("Phi", (k,), s.widths[T - 1], s.widths[T - 1], (layer,))


def path_of_text(s: StreamStack) -> tuple[Definition, ...]:
    """Return the recursion of `Φ`."""
    return (
        Definition(carried(s, i, i), Identity(s.widths[T - 1]), (i,)),
        Definition(carried(s, j, i + 1), s.U(i + 1, T, T) * carried(s, j, i), (i, j), ((j, i),)),
    )


def crossings(s: StreamStack, k: Any) -> IndexedSum:
    """Return `Σ_j Φ_j^{(k)} U_{j,2,1} P_{j-1,1,1}`, the sum over the layers at which the text reads the memory."""
    return IndexedSum(carried(s, j, k) * s.U(j, T, M) * s.P(j - 1, M, M), j, 1, k)


def crossings_of_a_term(s: StreamStack, k: Any) -> Any:
    """Return the same sum for the memory's term of layer j, at layer `j + k`, and what it writes into the text."""
    read = carried(s, j + _k, j + k) * s.U(j + _k, T, M) * s.C(j, j + _k - 1, M, M)
    return carried(s, j, j + k) * s.G(j, T, M) + IndexedSum(read, _k, 1, k)


def memory(recursions: tuple[Definition, ...] | None = None) -> Derivation:
    """Derive which parameters vanish beside a memory that reads nothing of the text, and what crosses into the text.

    Args:
        recursions: the recursions of the closed form; those of the stack if absent.

    Example:
        >>> memory().verified
        True
    """
    s, k = STACK, i + 1
    rules = s.recursions if recursions is None else recursions
    none, of_term = ZeroMatrix(s.widths[M - 1], s.widths[T - 1]), ZeroMatrix(s.widths[M - 1], s.neurons[T - 1])
    path = path_of_text(s)
    # The definition of C_i^{(i)} at layer j, where a term is born: nothing else says that j is 1 or more.
    born = tuple(
        Definition(r.left.xreplace({i: j}), r.right.xreplace({i: j})) for r in rules if r.left.lower[:1] == r.left.upper
    )
    of_P, of_C = ([r for r in rules if r.left.letter == letter] for letter in "PC")
    by, at_birth = "by the recursions", "where the term is born"
    steps = [
        *claim(Definition(s.P(i, M, T), none), by, by, *of_P),
        *claim(
            Definition(s.C(j, j + i, M, T), of_term), "where the term is born", by, *of_C, start=born, where="1 ≤ j"
        ),
        *claim(Definition(s.P(i, T, M), crossings(s, i)), by, by, *of_P, *path),
        *claim(
            Definition(s.C(j, j + i, T, M), crossings_of_a_term(s, i)),
            at_birth,
            by,
            *of_C,
            *path,
            start=born,
            where="1 ≤ j",
        ),
    ]
    vanishing = (Definition(s.P(i, M, T), none, (i,)), Definition(s.C(j, i, M, T), of_term, (i, j), ((j, i),)))
    known = tuple(Definition(s.x(i, r), s.form(i, r)) for r in s.streams)
    inside = [r for r in rules if r.left.letter in "Bh"]
    nothing = Definition(s.B(k, M, T), ZeroMatrix(s.neurons[M - 1], s.widths[T - 1]), (i,))
    own = s.activated(s.B(k, M, M) * s.x(0, M) + s.c(k, M), M)
    terms = IndexedSum(s.C(j, i, M, M) * s.h(j, M), j, 1, i)
    of_h = [r for r in rules if r.left.letter == "h"]
    uat = [r for r in rules if r.left.letter == "UAT"]
    steps += [
        equality(s.P(k, T, T), s.U(k, T, T) * s.P(i, T, T), f"{by} and what vanishes", (*vanishing, *of_P)),
        equality(nothing.left, nothing.right, f"{by} and what vanishes", (*vanishing, *inside)),
        equality(s.h(k, M), own, "by the definition and the equation before", (nothing, *of_h)),
        equality(
            s.x(i, M),
            s.P(i, M, M) * s.x(0, M) + s.q(i, M) + terms,
            "the closed form of the memory, without what vanishes",
            (*vanishing, *known, *uat),
        ),
    ]
    tokens, slots, features, of_memory, of_head, heads = sizes("N S M L m H")
    y = Variable("y", (), slots, of_memory)

    def values(r: Symbol) -> Any:
        return matrix("V", of_memory, of_head, r) * matrix("O", of_head, features, r)

    # h is a term, so heads are counted by r.
    attention = vec(summed(lambda r: matrix("D", tokens, slots, r) * y * values(r), 1, heads, "r"))
    reads = summed(lambda r: kronecker(matrix("D", tokens, slots, r), values(r).T), 1, heads, "r") * vec(y)
    steps.append(equality(attention, reads, "cross-attention of the text to the memory y"))
    return Derivation(
        "A memory beside the text",
        tuple(steps),
        given=let_each(*rules, *path),
        premises=(
            *s.premises("Stream 1 is a memory, which reads nothing of stream 2, the text; term 1 is the memory's"),
            "Every stream has its closed form, as the theorem on several streams says.",
        ),
        words={**s.words, "Phi": _PATH},
        known=equations((*known, *born, vanishing[-1])),
    )


def constant_memory() -> Derivation:
    """Derive the form of a text beside a memory that is the same in every layer, such as a prefix that is learned.

    Example:
        >>> constant_memory().verified
        True
    """
    d, n = STACK.widths, STACK.neurons[:1]
    s = StreamStack(d, n, (), absent=(("U", M, T), ("G", M, 1)))
    k, rules, path = i + 1, s.recursions, path_of_text(s)
    unit, none = Identity(d[M - 1]), ZeroMatrix(d[M - 1], 1)
    constant = (Definition(s.U(k, M, M), unit, (i,)), Definition(s.b(k, M), none, (i,)))
    known = (*constant, *s.layer)
    shown = [r for r in rules if r.left.letter in "PB" and r.left.lower[2] == M]
    by, of_P = "by the recursions", [r for r in shown if r.left.letter == "P"]
    same = Definition(s.P(i, M, M), unit, (i,))
    reads = IndexedSum(carried(s, j, i) * s.U(j, T, M), j, 1, i)
    steps = (
        *claim(Definition(s.x(i, M), s.x(0, M)), "both sides are the input", "by the equation of the layer", *known),
        *claim(Definition(s.P(i, M, M), unit), by, f"{by} and U_{{i+1,1,1}} = I", *of_P, *constant),
        *claim(Definition(s.P(i, T, M), reads), by, f"{by} and P_{{i,1,1}} = I", same, *of_P, *path),
        equality(
            s.B(k, 1, M),
            s.F(k, 1, M) + s.F(k, 1, T) * s.P(i, T, M),
            f"{by} and P_{{i,1,1}} = I",
            (same, *shown),
        ),
    )
    stated = (suppose(each.left, each.right, "") for each in constant)
    first, *rest = s.premises("Stream 1 is a memory that is the same in every layer; stream 2 is the text")
    return Derivation(
        "A memory that is the same in every layer",
        steps,
        given=let_each(*shown, *path),
        premises=(first, *rest[:-1], *stated, rest[-1]),
        words={**s.words, "Phi": _PATH},
    )
