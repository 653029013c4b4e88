"""Theorems state what they assume before what they say, in text and LaTeX, and say what is proved and what isn't."""

import re
import unicodedata
from functools import cache

import pytest
from command import run

from symbolic.blocks.transformer import transformer_block
from symbolic.catalogue import WHAT, derive
from symbolic.expressions.latex import escaped
from symbolic.expressions.parameter import Parameter
from symbolic.proof.theorem import theorem
from symbolic.proof.typesetting import compilable

BLOCK = transformer_block("pre-norm", gated=True)
EVERY = [*WHAT, "a block"]
IN_WORDS = re.compile(r"treated as (a )?constants?|Nothing is held|No parameter of a layer depends on the input")


@cache
def derive_all(what):
    """Return the derivations of a name, or of a block."""
    if what != "a block":
        return derive(what)
    return BLOCK.recursions(), BLOCK.collapse(), BLOCK.contributions(), BLOCK.difference(), BLOCK.unroll(2)


def words_of(latex):
    """Return the words of LaTeX in order, without formulas."""
    return " ".join(re.findall(r"[a-z]{3,}", re.sub(r"\$[^$]*\$", " ", latex)))


@pytest.mark.parametrize("what", EVERY)
def test_hypotheses_stand_above_the_statement(what):
    for derivation in derive_all(what):
        assert derivation.hypotheses
        text = derivation.unicode()
        assert text.index("\nHypotheses:\n· ") < re.search(r"^([✓✗○]|Claim| .*:=)", text, re.MULTILINE).start()
        statement = r"\begin{theorem}" if derivation.proved else r"\paragraph{Densities"
        setting, _, rest = theorem(derivation).partition(statement)
        hypotheses = (*derivation.premises, *derivation.conventions)  # the rest is said of letters and their spaces
        stated = [each if isinstance(each, str) else each.rule for each in hypotheses]
        assert rest and all(words_of(escaped(each)) in words_of(setting) for each in stated)
        assert all(r"\text{" in derivation._repr_latex_().split(r"\begin{aligned}")[0] for _ in derivation.hypotheses)


NOTHING_TO_HOLD = ("lemma", "linear", "mlp", "density", "diamond")


@pytest.mark.parametrize("what", [what for what in EVERY if what not in NOTHING_TO_HOLD])
def test_what_is_held_is_said_in_words(what):
    for derivation in derive_all(what):
        assert any(IN_WORDS.search(each) for each in derivation.hypotheses if isinstance(each, str))


@pytest.mark.parametrize("what", EVERY)
def test_a_paper_whose_equations_are_numbered_is_named(what):
    for derivation in derive_all(what):
        numbered = any(re.search(r"Eq\. \d", step.rule) for step in derivation.steps)
        assert numbered <= ("arXiv:2407.00958" in derivation.unicode())
        assert numbered <= ("arXiv:2407.00958" in theorem(derivation))


@pytest.mark.parametrize("what", EVERY)
def test_an_induction_hypothesis_is_no_assumption(what):
    for derivation in derive_all(what):
        assumed = [step for step in derivation.steps if step.assumed]
        stated = re.search(r"(\d+) assumptions?", derivation.verdict)
        assert len(assumed) == (int(stated[1]) if stated else 0)
        assert not any("induction" in step.rule for step in assumed)
        for step in derivation.inductions:
            assert step.verified is None and "induction" in step.rule
            assert "by induction" in derivation.verdict
        statement = theorem(derivation).partition(r"\end{theorem}")[0]
        assert ("Assume\n" in statement or "\nLet " in statement) == bool(assumed)


def test_the_only_assumptions_are_those_of_the_difference_forms_and_of_pruning():
    assumed = {what: sum(step.assumed for d in derive_all(what) for step in d.steps) for what in EVERY}
    assert {what: count for what, count in assumed.items() if count} == {
        "difference": 1,
        "attention-difference": 3,
        "pruning": 1,
        "a block": 1,
    }


def test_what_is_checked_at_sizes_is_not_said_to_be_proved():
    (density,) = derive("density")
    assert not density.proved and density.verified
    assert "✓" not in density.unicode() and density.unicode().count("○") == len(density.steps)
    assert density.verdict == "5 of 5 hold at the sizes checked, and aren't proved"
    assert "checked at (N, M) = (2, 3)" in density.unicode()
    assert r"\begin{theorem}" not in theorem(density) and r"\begin{proof}" not in theorem(density)
    assert theorem(density).count(r"\overset{\circ}{=}") == len(density.steps)
    assert {what for what in EVERY if not all(d.proved for d in derive_all(what))} == {"density"}


NAMES = {"diag", "vec", "exp", "Abs", "Matrix", "T", "UAT", "rho", "varepsilon"}
LETTER = re.compile(r"[^\W\d_]+")


def letters_of(line):
    """Return the letters of an equation in text, without accents, indices and names of operations."""
    plain = "".join(c for c in unicodedata.normalize("NFD", line) if unicodedata.category(c) not in ("Mn", "No", "Lm"))
    plain = re.sub(r"\.T\b|_\{[^}]*\}|_\d|\[[A-Z]+(,.)?\]|\[.=\d\.\.[^]]*\]|[ᵢⱼₖₘₙᵣ]", " ", plain)
    words = {word.replace("Δ", "") for word in LETTER.findall(plain)}
    return {letter for word in words for letter in ([word] if word in NAMES or len(word) == 1 else word)} - {
        "T",
        "Σ",
        "",
    }


@pytest.mark.parametrize("what", WHAT)
def test_every_letter_that_is_printed_is_defined_in_the_same_text(what):
    before, *texts = re.split(r"^Letters\n", run("derive", "--what", what).stdout, flags=re.MULTILINE)
    assert not before and texts
    for text in texts:  # each theorem's
        table, _, rest = text.partition("\n\n")
        defined = set().union(*(letters_of(line.split("  ")[0]) for line in table.splitlines()[1:]))
        equations = re.findall(r"^[✓✗○ ] (.*? (?:=|:=|≈|<|≤) .*?)(?:    \[|Matrix\(\[$)", rest, re.MULTILINE)
        assert equations
        printed = set().union(*map(letters_of, equations))
        assert printed - defined <= {"Abs", "Matrix"}, printed - defined


@pytest.mark.parametrize("what", ["two-layers", "recursions", "proof", "collapse", "contributions", "pruning", "lora"])
def test_every_parameter_of_the_closed_form_is_defined_by_an_equation(what):
    (derivation, *_) = derive(what)
    steps = (*derivation.given, *derivation.steps)
    named = {step.left.letter for step in steps if hasattr(step.left, "letter")}
    used = {p.letter for step in steps for p in step.right.atoms(Parameter)}
    assert {"P", "q", "B", "c", "C", "UAT"} & used <= named


def test_a_blocks_theorems_have_its_own_parameters_in_every_layer():
    for derivation in (BLOCK.recursions(), BLOCK.prove(), BLOCK.collapse(), BLOCK.contributions()):
        letters = {p.letter for step in (*derivation.given, *derivation.steps) for p in step.right.atoms(Parameter)}
        assert not {"W'", "b'"} & letters, derivation.title


@pytest.mark.parametrize("what", EVERY)
def test_no_character_is_printed_as_its_number(what):
    for derivation in derive_all(what):
        assert "U+" not in compilable(theorem(derivation))
        assert derivation._repr_latex_().isascii()  # KaTeX takes no Greek letter in words
