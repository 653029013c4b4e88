"""Relations between parameters are hypotheses: what follows from them is shown, and only that."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from sympy import Identity, Symbol, ZeroMatrix
from test_theorems_in_numbers import all_of

from symbolic import (
    Block,
    Definition,
    SymbolicError,
    activation,
    diag,
    held,
    identity,
    kronecker,
    matrix,
    ones,
    sizes,
    vec,
)
from symbolic.equality.normal_form import decide, equal
from symbolic.errors import NumbersDiffer
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Equation, equality
from symbolic.proof.theorem import theorem as typeset_theorem
from symbolic.theorems.closed_form import prove

N, M = sizes("N M")
A, B, S, Q = (matrix(letter, N, N) for letter in "ABSQ")
H, E = held("H", N, N), matrix("E", N, M)
R = matrix("R", M, M)
u, v, b = matrix("u", N, 1), matrix("v", N, 1), matrix("b", M, 1)
one, eye = ones(N), Identity(N)
k, n = Symbol("k", integer=True, nonnegative=True), Symbol("n", integer=True, nonnegative=True)


def heads(index):
    return held("H", N, N, index)


ROWS, ORTHOGONAL = Definition(H * one, one), Definition(Q.T * Q, eye)
SYMMETRIC, HALF = Definition(S, S.T), Definition(E * E.T, eye)
EVERY_HEAD = Definition(heads(k) * one, one, (k,))
INVERSE = Definition(A * B, eye)
RESOLVENT = Definition(A * B, B - eye)

FOLLOWS = {
    "a bias passes through attention": (H * one * b.T, one * b.T, ROWS),
    "so it does on vec": (kronecker(H, R.T) * kronecker(one, b), kronecker(one, R.T * b), ROWS),
    "so it does in vec": (vec(H * one * b.T * R), kronecker(one, R.T * b), ROWS),
    "columns of the transpose": (one.T * H.T * u, one.T * u, ROWS),
    "the mean of a row": (H * (one * one.T * u / N), one * (one.T * u) / N, ROWS),
    "twice": (H * H * one, one, ROWS),
    "in diag": (diag(H * one) * u, u, ROWS),
    "in an activation": (activation(H * one * b.T), activation(one * b.T), ROWS),
    "every head": (IndexedSum(heads(k) * one, k, 1, n), n * one, EVERY_HEAD),
    "one head": (heads(3) * one * b.T, one * b.T, EVERY_HEAD),
    "an orthogonal matrix keeps inner products": ((Q * u).T * (Q * v), u.T * v, ORTHOGONAL),
    "in the middle": (A * Q.T * Q * B, A * B, ORTHOGONAL),
    "beside a factor": (kronecker(Q.T, R) * kronecker(Q, b), kronecker(eye, R * b), ORTHOGONAL),
    "a symmetric matrix": (u.T * S * v, v.T * S * u, SYMMETRIC),
    "a symmetric matrix inside another product": (u.T * S * v * b.T, v.T * S * u * b.T, SYMMETRIC),
    "its square": ((S * S * A).T, A.T * S * S, SYMMETRIC),
    "written the other way": (S.T * A, S * A, Definition(S.T, S)),
    "rows that are orthonormal": (E * E.T * A, A, HALF),
    "an inverse": (u.T * A * B * v, u.T * v, INVERSE),
    "a sum on the right": (A * B * u, B * u - u, RESOLVENT),
    "the identity on the left": (Q.T * Q * u, u, Definition(eye, Q.T * Q)),
}  # fmt: skip

DOESNT_FOLLOW = {
    "columns needn't sum to one": (one.T * H, one.T, ROWS),
    "another pattern": (A * one, one, ROWS),
    "an orthogonal matrix isn't the identity": (Q * u, u, ORTHOGONAL),
    "the other order": (Q * Q.T * u, u, ORTHOGONAL),
    "the other side": (E.T * E * R, R, HALF),
    "a product of symmetric ones": ((S * A).T, S * A, SYMMETRIC),
    "the inverse from the left": (B * A, eye, INVERSE),
    "another letter with heads": (matrix("G", N, N, 3) * one, one, EVERY_HEAD),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWS)
def test_it_follows_from_the_relation_and_from_nothing_less(name):
    left, right, relation = FOLLOWS[name]
    decision = decide(left, right, [relation, Definition(matrix("Z", N, N) * u, v)])
    assert decision.equal and decision.used == (relation,)
    assert not equal(left, right)


@pytest.mark.parametrize("name", DOESNT_FOLLOW)
def test_it_does_not_follow(name):
    left, right, relation = DOESNT_FOLLOW[name]
    assert not equal(left, right, [relation])


@pytest.mark.parametrize("relation", [(A * B, B * A), (A + B, S), (A.T, B.T), (2 * A * B, eye)], ids=str)
def test_a_relation_that_makes_nothing_shorter_is_refused(relation):
    with pytest.raises(SymbolicError, match="fewer factors"):
        equal(A, B, [Definition(*relation)])


@pytest.mark.parametrize("side", [1, None, "A", N])
def test_a_side_that_is_no_matrix_expression_is_refused(side):
    with pytest.raises(SymbolicError, match="give matrix expressions"):
        Definition(A, side)


V, F, G, P = matrix("V", M, M), matrix("F", M, 3), matrix("G", 3, M), matrix("P", M, M)


def related(*relations, shape=(N, M)):
    """Return a block whose parameters are shorter under relations."""
    return Block(
        lambda x: x * P.T * P + H * (x * V + one * b.T) + activation(H * (x + one * b.T) * F) * G,
        shape,
        relations=relations,
    )


KEEPS = Definition(P.T * P, identity(M))
BOTH = [f"{letter}ᵢ₊₁ 1[N] = 1[N]" for letter in ("H", "H̃")]


def test_every_theorem_of_a_block_uses_its_relations_and_states_those_that_it_used():
    block = related(ROWS, KEEPS)
    parameters = {str(entry.left): str(entry.right) for entry in block.parameters}
    assert parameters["b′ᵢ₊₁,₃"] == "1[N] ⊗ bᵢ₊₁" and parameters["W′ᵢ₊₁,₁"] == "I + Hᵢ₊₁ ⊗ Vᵢ₊₁.T"
    for theorem in (*all_of(block), block.prove(letters=True)):
        stated = {f"{each.left} = {each.right}" for each in theorem.hypotheses if not isinstance(each, str)}
        assert theorem.proved and {BOTH[0], "Pᵢ₊₁.T Pᵢ₊₁ = I"} <= stated, theorem
        assert (BOTH[1] in stated) == ("difference" in theorem.title)
        used = {f"{a} = {b}" for conditions in theorem.conditions for a, b in conditions}
        assert not used & {*BOTH, "Pᵢ₊₁.T Pᵢ₊₁ = I"}
    assert r"\mathbf{H}_{i} \mathbf{1}_{N} = \mathbf{1}_{N}" in block.document()


def test_a_relation_that_no_step_uses_is_not_stated():
    unused = Block(lambda x: x + H * x * P, (N, M), relations=(ROWS, KEEPS))
    assert all("Assumed" not in str(theorem) for theorem in all_of(unused))


def test_without_its_relation_a_theorem_is_not_proved():
    block = related(ROWS, KEEPS)
    block.relations = (ROWS,)
    assert not block.residual_terms().verified and not block.prove().verified and not block.unroll(2).verified


@pytest.mark.parametrize(
    ("relation", "words"),
    [
        (Definition(P, V), "is no relation"),
        ((P.T * P, identity(M)), "is no relation"),
        (Definition(Q.T * Q, eye), "relates Q, no parameter of the layer"),
        (Definition(P * V, V * P), "fewer factors"),
    ],
    ids=["definition", "pair", "letter", "order"],
)
def test_what_is_no_relation_of_the_layer_is_refused(relation, words):
    with pytest.raises(SymbolicError, match=words):
        related(relation)


def test_numbers_that_break_a_relation_are_noticed():
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    block = Block(lambda x: x * P.T * P + x * V, (N, M), relations=(KEEPS,))
    stretch, weights = 2 * turn, {"P": turn, "V": np.array([[1.0, 2.0], [0.5, -1.0]])}

    def layer(p):
        return lambda x: x @ p.T @ p + x @ weights["V"]

    x = jnp.array([[0.3, -0.7], [1.0, 2.0], [0.1, 0.4]])
    assert block.verify([layer(turn)] * 2, x, [weights] * 2, {}).holds
    with pytest.raises(NumbersDiffer, match="W'1 v"):
        block.verify(layer(stretch), x, weights | {"P": stretch}, {})


def test_a_step_carries_its_relation_and_the_theorem_claims_no_more():
    plain = equality(A * (u + v), A * u + A * v, "multiplied out")
    under = equality(H * one * b.T, one * b.T, "rows of a pattern sum to one", [ROWS])
    derivation = Derivation("A test", (plain, under))
    assert derivation.conditions == ((), ((H * one, one),))
    assert "[rows of a pattern sum to one, where H 1[N] = 1[N]]" in str(derivation)
    statement = typeset_theorem(derivation).partition(r"\end{theorem}")[0]
    always, _, where = statement.partition(r"Where $\mathbf{H} \mathbf{1}_{N} = \mathbf{1}_{N}$,")
    assert r"\label{eq:a-test:1}" in always and r"\label{eq:a-test:2}" in where


def test_a_claim_for_every_depth_has_the_conditions_of_its_proof():
    proof = prove()
    steps = [
        replace(step, using=(*step.using, Equation(H * one, one))) if step.verified else step for step in proof.steps
    ]
    statement = typeset_theorem(replace(proof, steps=tuple(steps)))
    assert r"Then, where $\mathbf{H} \mathbf{1}_{N} = \mathbf{1}_{N}$, for every $i\ge0$" in statement
    assert "Then, for every" in typeset_theorem(proof)


def test_a_step_inherits_the_conditions_of_the_equations_that_it_uses():
    zero = ZeroMatrix(N, 1)
    first = equality(u, zero, "first", [Definition(u, A * v), Definition(v, zero)])
    second = equality(B * u, zero, "second", [Definition(u, zero)])
    conditions = Derivation("A test", (first, second)).conditions
    assert conditions[0] == conditions[1] == ((u, A * v), (v, zero))
