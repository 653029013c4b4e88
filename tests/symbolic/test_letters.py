"""Letters carry no meaning: a user's may be any of the form's own, which are told apart on paper."""

import re

import jax
import jax.numpy as jnp
import pytest
from helpers import numbers

import duat_jax as duat
from symbolic import Block, activation, derive, diag, equal, held, matrix, scalar, sizes, summed, typeset, vector
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.expressions.parameter import GREEK, Parameter
from symbolic.proof.legend import in_text, letters, letters_in_text
from symbolic.proof.theorem import theorem
from symbolic.theorems.residual_stack import ResidualStack, i

d, n, heads = sizes("d n N")
F, G = matrix("F", n, d), matrix("G", d, n)
DOTTED = "P\u0307"


def derivations(block):
    return (
        block.residual_terms(), block.recursions(), block.prove(), block.unroll(2), block.unroll(5), block.collapse(),
        block.contributions(), block.difference(),
    )  # fmt: skip


def parameters_in(derivation):
    sides = (side for step in derivation.steps for side in (step.left, step.right) if side is not None)
    return set().union(*(side.atoms(Parameter) for side in sides))


PLAIN = Block(lambda x: x + G * activation(F * x + vector("f", n)))
OWN = sorted({p.parts.bare for each in derivations(PLAIN) for p in parameters_in(each) if not p.of_layer} - {"1"})


def test_the_letters_of_the_form_are_those_that_a_user_takes_first():
    assert {"P", "q", "B", "c", "C", "UAT", "W", "b", "x", "s", "t", "u", "y", "z", "h", "mu", "Psi"} <= {*OWN}


def block_of_letters(letter, primes=""):
    """A layer with one letter of the form as a weight, with two primes as a bias, held, and as a number."""
    name = letter + primes

    def layer(x):
        inside = activation(F * x + vector(name + "''", n))
        return x + matrix(name, d, n) * diag(held(name, n, 1, 7)) * inside + scalar(name, 8) * x

    return Block(layer, name="layer")


@pytest.mark.parametrize(
    "letter", [each if each in "PBxW" else pytest.param(each, marks=pytest.mark.slow) for each in OWN]
)
def test_a_letter_of_the_form_is_any_letter_to_a_user(letter):
    for primes in ("", "'"):
        block = block_of_letters(letter, primes)
        for derivation in derivations(block):
            assert derivation.verified, derivation
            here = parameters_in(derivation)
            for write in (str, typeset):
                theirs, ours = ({write(p) for p in here if p.of_layer is user} for user in (True, False))
                assert not theirs & ours, derivation.title
            alike = [p for p in here if not p.of_layer and p.parts[1::2] == (letter, primes)]
            assert all("\u0307" in p.parts.accents for p in alike), derivation.title


def test_the_forms_own_symbols_have_a_dot_where_they_meet_a_users():
    block = Block(lambda x: x + matrix("P", d, d) * x + G * activation(F * x))
    shown = str(block.recursions())
    assert f"{DOTTED}ᵢ₊₁ := (I + Pᵢ₊₁) {DOTTED}ᵢ" in shown and "qᵢ₊₁ :=" in shown
    assert r"\dot{\mathbf{P}}_{i + 1}" in block.recursions().latex()
    assert r"\dot{\mathbf{P}}_{i} :=" in block.document()
    assert DOTTED not in str(Block(lambda x: x + G * activation(F * x)).recursions())
    number = Block(lambda x: x + matrix("y", d, d) * x).contributions()
    assert r"\dot{y}_{i} := " in theorem(number) and "\u0307" not in theorem(number)


def test_a_letter_of_the_form_isnt_put_in_for_a_users():
    s = ResidualStack()
    user, own = block_of_letters("P").written.atoms(Parameter), s.P(i + 1)
    (theirs,) = (p for p in user if p.letter == "P" and p.shape == (d, n))
    same = theirs.func("P", own.lower, *own.shape)
    assert str(same) == str(own) and same != own
    assert equal(own, s.W(i + 1, 1) * s.P(i), s.recursions)
    assert not equal(same, s.W(i + 1, 1) * s.P(i), s.recursions)
    assert not equal(same, own)


def test_a_state_space_layer_keeps_its_letters():
    """The B and C of a state space model, and the x, P and W that people write first."""
    N, M, K = 3, 4, 2
    weights = {"B": numbers(M, K), "C": numbers(K, M, key=1), "P": numbers(M, M, key=2), "W'": numbers(M, M, key=3)}
    weights |= {"x": 0.7, "x'": numbers(M, M, key=4)}
    block = Block(
        lambda x: (
            x
            + held("A", N, N) * x * matrix("B", M, K) * matrix("C", K, M)
            + activation(x * matrix("P", M, M)) * matrix("W'", M, M) * matrix("x'", M, M) * scalar("x")
        ),
        (N, M),
        name="state space layer",
    )

    def layer(x):
        scan = duat.hold(jnp.tril(jax.nn.sigmoid(x @ x.T)), "A") @ x @ weights["B"] @ weights["C"]
        return x + scan + duat.term(jnp.tanh, x @ weights["P"], "mlp") @ weights["W'"] @ weights["x'"] * 0.7

    assert block.prove().verified and block.difference().verified
    assert block.verify([layer, layer], jnp.array(numbers(N, M, key=5)), weights, jnp.tanh).holds


def test_greek_letters_are_written_in_either_way():
    for name, letter in GREEK.items():
        assert matrix(letter, 2, 2) == matrix(name, 2, 2)
        assert str(matrix(letter, 2, 2)) == letter
        assert typeset(matrix(letter, 2, 2)).isascii() and typeset(scalar(letter)) == rf"\{name}"
    block = Block(lambda x: scalar("α") * x + matrix("μ", 2, 2) * x, (2, 1))
    x, mu = jnp.array([1.0, -2.0]), jnp.array(numbers(2, 2))
    assert block.difference().verified
    assert block.verify(lambda x: 2 * x + mu @ x, x, {"α": 2.0, "mu": mu}, {}).holds


@pytest.mark.parametrize("letter", ["é", "Ж", "W1", "a#b", "ΔW", "W̃", "漢", "", "'", "W_1", "αβ"])
def test_what_no_latex_has_is_no_letter(letter):
    for make in (
        lambda: matrix(letter, 2, 2),
        lambda: vector(letter, 2),
        lambda: held(letter, 2),
        lambda: scalar(letter),
    ):
        with pytest.raises(SymbolicError, match="is no letter: give Latin letters or one Greek letter"):
            make()


def test_heads_and_layers_have_indices_of_their_own_on_paper():
    def head(h):
        return held("H", d, d, h) * matrix("V", d, d, h)

    for index, shown in (("h", "h"), ("j", "h")):
        block = Block(lambda x, index=index: x + summed(head, 1, heads, index) * x + G * activation(F * x))
        assert block.prove().verified and block.difference().verified
        path = str(block.residual_terms().steps[1].right)
        assert path.startswith("I + ") and f"Σ[{shown}=1..N]" in path, path
        recursions = str(block.recursions())
        assert f"Σ[{shown}=1..N]" in recursions and "Σ[j=1..i]" in recursions


def test_the_name_of_an_index_is_nothing():
    def total(index):
        return summed(lambda h: matrix("V", d, d, h), 1, heads, index)

    assert equal(total("h"), total("p"))
    assert equal(activation(total("h") * vector("f", d)), activation(total("q") * vector("f", d)))
    assert equal(total("h") * total("h"), total("h") * total("p"))


LISTED = {
    "lemma": ("k           the length of the sum", "j           a term", "N           the number of terms"),
    "mlp": (
        "R₁    N × N    matrices of the MLP on rows",
        "b₁    P × 1    biases of the MLP on features",
        "c₁    N × M    bi",
    ),
    "linear": ("R    N × N  the matrix of a linear map on rows", "W    M × P  the matrix of a linear map on features"),
    "attention": ("W[Q]     M × M", "W′[HVO]  M*N × M*N", "k                   a head"),
    "pruning": ("S_1                the sum of the kept terms\n", "d                  the length of the stream"),
    "attention-difference": ("L             the logarithmic means of a row at both inputs: an entry",),
}


@pytest.mark.parametrize(("what", "rows"), LISTED.items(), ids=list(LISTED))
def test_a_letter_is_explained_as_its_own_derivation_means_it(what, rows):
    table = letters_in_text(*derive(what))
    for row in rows:
        assert row in table, table


INDICES = re.compile(r"[ᵢⱼₖₕₘₙₚᵣₛᵤ₀-₉₊₋,]+|⁽.*⁾")


@pytest.mark.parametrize("what", ["streams", "memory", "recurrence"])
def test_a_letter_of_several_streams_has_one_meaning(what):
    for derivation in derive(what):
        meanings = {}
        for entry in letters([derivation]):
            meanings.setdefault(INDICES.sub("", entry.text), set()).add(entry.words)
        assert not {letter: words for letter, words in meanings.items() if len(words) > 1}


def test_the_decays_of_all_tokens_are_defined_by_those_of_two():
    *_, derivation = derive("recurrence")
    assert "Λ[i,j] := λⱼ⁽ⁱ⁾    [definition, for 1 ≤ j ≤ i]" in str(derivation)
    assert "Λ[i,j] := 0    [definition, for j > i]" in str(derivation)
    assert r"\boldsymbol{\Lambda}\in" not in theorem(derivation)


def test_a_users_size_isnt_that_of_another_derivation():
    k, r = sizes("k r")
    block = Block(lambda x: x + matrix("G", k, r) * activation(matrix("F", r, k) * x), (k, 1))
    table = letters_in_text(block.residual_terms())
    assert table.count("a size") == 2 and "kernel" not in table and "adapter" not in table


def test_layers_of_several_terms_arent_called_equation_20_itself():
    two = Block(lambda x: x + G * activation(F * activation(G * activation(F * x))))
    for block, several in ((PLAIN, False), (two, True)):
        for derivation in (block.residual_terms(), block.prove(), block.unroll(1), block.difference()):
            assert ("Eq. 20, extended to several terms" in str(derivation)) is several, derivation


def test_the_hypotheses_say_that_layers_have_the_same_sizes():
    for derivation in derivations(PLAIN):
        assert "Sizes, the same in every layer: d and n are any positive integers" in str(derivation)
    assert "Sizes: " in str(derive("lemma")[0])
    weights = [{"F": numbers(size, 4), "G": numbers(4, size)} for size in (5, 7)]
    block = Block(lambda x: x + G * activation(F * x))
    layers = [lambda x, w=w: x + w["G"] @ duat.term(jnp.tanh, w["F"] @ x, "mlp") for w in weights]
    with pytest.raises(ShapeMismatch, match="expected 4 × 5.*the same sizes in every layer; duat.unroll takes"):
        block.verify(layers, jnp.ones(4), weights, jnp.tanh)


def test_three_layers_are_written_out_in_full():
    (derivation,) = derive("unroll", depth=3)
    assert derivation.steps[-1].rule == "in full" and derivation.verified


def test_theorems_whose_letters_differ_have_a_table_each():
    one, several, decay = derive("recurrence")
    text = in_text(one, several, decay)
    parts = text.split("Letters\n───────\n")[1:]
    assert [each.title in part for each, part in zip((one, several, decay), parts, strict=True)] == [True] * 3
    for derivation, part in zip((one, several, decay), parts, strict=True):
        assert part.endswith(f"{derivation}" + "\n\n" * (derivation is not decay))
        table = part.partition("\n\n")[0].splitlines()
        shown = [line.split("  ")[0] for line in table]
        assert len({*shown}) == len(shown)
    assert in_text(*derive("memory")).count("Letters\n") == 1
