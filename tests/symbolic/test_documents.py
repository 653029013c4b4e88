"""LaTeX: every letter that occurs is explained and no other, lines fit, references resolve, and pdflatex takes it."""

import re
import shutil
from contextlib import suppress
from itertools import pairwise

import jax.numpy as jnp
import pytest
from flax import nnx

from duat_jax.nn import BLOCKS as BLOCK_TYPES
from duat_jax.nn import make_stack
from duat_jax.nn.position import Rotary
from symbolic.blocks.block import Block
from symbolic.blocks.transformer import BLOCKS, transformer_block
from symbolic.catalogue import WHAT, derive
from symbolic.errors import SymbolicError
from symbolic.expressions.constructors import activation, diag, hadamard, held, matrix, sizes, summed, vector
from symbolic.expressions.latex import typeset
from symbolic.proof.derivation import ROOM
from symbolic.proof.legend import rows
from symbolic.proof.line_breaks import broken, width
from symbolic.proof.step import Step
from symbolic.proof.theorem import theorem
from symbolic.proof.typesetting import article, compilable, document, fragment
from symbolic.theorems.notation import in_the_papers_letters
from typesetting.check import check_latex, several_terms, two_columns

N, M, K, m = sizes("N M K m")


def swiglu(x):
    """Write a block with rotary attention of grouped heads and a gated MLP, its norms' scales held."""
    normed = diag(held("r", N, 1, 1)) * x * diag(vector("n", M, 1))
    values = summed(lambda h: held("H", N, N, h) * normed * matrix("V", M, m, h) * matrix("O", m, M, h), 1, 4)
    y = x + values
    z = diag(held("r", N, 1, 2)) * y * diag(vector("n", M, 2))
    return y + hadamard(held("U", N, K), activation(z * matrix("G", M, K), "silu")) * matrix("D", K, M)


def read_from_a_program():
    config = BLOCK_TYPES["pre-norm"](
        features=4,
        heads=2,
        neurons=6,
        key_value_heads=1,
        rotary=Rotary((1.0,)),
        mlp="gated",
        norm="rms",
        activation="silu",
    )
    stack = make_stack(config, layers=1, rngs=nnx.Rngs(0))
    return Block.from_function(stack.blocks[0], jnp.ones((3, 4), jnp.float32))


DOCUMENTS = {what: (lambda what=what: derive(what)) for what in WHAT if what not in ("proof", "block")}
DOCUMENTS |= {
    f"{name}, gated" if gated else name: (
        lambda name=name, gated=gated: (
            (block := transformer_block(name, gated=gated)).residual_terms(),
            block.prove(letters=True),
            block.prove(),
            block.unroll(3),
            block.difference(),
        )
    )
    for name in BLOCKS
    for gated in (False, True)
}
DOCUMENTS |= {
    "proof": lambda: derive("proof")[:1],
    "depth 32": lambda: derive("unroll", depth=32),
    "several terms": lambda: (several_terms().residual_terms(), several_terms().prove(), several_terms().difference()),
    "SwiGLU": lambda: ((block := Block(swiglu, (N, M), "SwiGLU block")).residual_terms(), block.prove()),
    "read from a program": lambda: ((block := read_from_a_program()).residual_terms(), block.prove()),
}


LETTER = re.compile(
    r"\\(?:mathbf|boldsymbol)\{[^{}]*\}|\\mathrm\{UAT\}|\\operatorname\{\w+\}|\\(?:sigma|otimes|odot|Delta|overline|widetilde"
    r"|widehat|varepsilon|rho|gamma|beta)(?![a-z])|(?<![\\a-zA-Z])[a-zA-Z](?![a-zA-Z])"
)


def letters_of(formula):
    """Return the letters of a formula, without words, labels, commands and the letters in names and indices."""
    text = re.sub(r"\\(?:text|label|eqref)\{[^{}]*\}|\\(?:begin|end)\{\w+\}|\\d?resizebox\{[^{}]*\}\{!\}", " ", formula)
    names = re.sub(r"_\{[A-Z]+(?:[,;][\w,;]*)?\}|[_^]\{?(?:T|R)\}?", " ", text)
    return {match.group().replace(" ", "") for match in LETTER.finditer(names)} - {"e"}


def equations(derivation):
    """Return the equations of a theorem and its proof: those in displays, and those in a sentence."""
    latex = theorem(derivation)
    displays = re.findall(r"\\begin\{(align|gather|equation)\*?\}(.*?)\\end\{\1", latex, re.DOTALL)
    return "\n".join([*(formula for _, formula in displays), *re.findall(r"^\$(.*)\$\.$", latex, re.MULTILINE)])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_letter_that_occurs_is_explained_and_no_other(name):
    derivations = DOCUMENTS[name]()
    printed = set().union(*map(letters_of, map(equations, derivations)))
    named = set().union(*(letters_of(left) for d in derivations for left in re.findall(r"(.*):=", equations(d))))
    explained = set().union(*(letters_of(letter) for letter, _, _ in rows(derivations)))
    assert printed - named <= explained
    shapes = set().union(*(letters_of(shape) for _, shape, _ in rows(derivations)))
    assert explained - shapes - {"x", "i", "j"} <= printed
    for derivation in derivations:  # in the theorem's own text: by an equation, in its setting, or by custom
        latex = theorem(derivation)
        sentences = re.findall(r"^Write\b.*", latex, re.MULTILINE)
        given = set().union(*map(letters_of, re.findall(r"\$[^$]*\$", " ".join(sentences))))
        by_equations = set().union(*map(letters_of, re.findall(r"(.*):=", equations(derivation))))
        custom = {"i", "j", r"\mathbf{I}", r"\mathbf{0}", r"\otimes", r"\operatorname{vec}"}
        assert letters_of(equations(derivation)) <= given | by_equations | custom
        assert (r"\operatorname{vec}" in latex) <= ("vec puts the rows of a matrix under one another" in latex)


@pytest.mark.parametrize("name", ["recursions", "collapse", "attention", "proof"])
def test_a_fragment_refers_to_its_own_equations_and_says_what_it_needs_and_what_was_verified(name):
    text = fragment(*DOCUMENTS[name](), line=246.0)
    first, *_, last = text.splitlines()
    assert first.startswith("%") and all(package in first for package in ("amsmath", "amssymb", "amsthm"))
    assert (r"\resizebox" in text) == ("graphicx" in first)
    assert last.startswith("% duat-jax") and "hold" in last and "sizes that are symbols: " in last
    assert "Verified symbolically by duat-jax" in text
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(labels) == len(set(labels))
    assert set(re.findall(r"\\eqref\{(.*?)\}", text)) <= set(labels)
    proofs = re.findall(r"\\begin\{proof\}.*?\\end\{proof\}", text, re.DOTALL)
    assert all(r"\label" not in proof for proof in proofs)


def test_a_fragment_states_conventions_and_letters_once():
    text = fragment(
        *(each for name in ("pre-norm", "pre-norm-gated") for each in derive("proof", block=name, letters=True))
    )
    assert text.count("for any function of one number") == text.count("for biases") == 1
    assert text.count("Held, that is") == text.count(r"\begin{theorem}") == 2


def numbered_definitions(statement):
    """Return the displays of definitions that have a number, each with its label."""
    displays = re.findall(r"\\begin\{gather\}\n(.*?)\\end\{gather\}", statement, re.DOTALL)
    return {re.search(r"\\label\{(.*?)\}", display)[1]: display for display in displays if ":=" in display}


def test_a_proof_names_the_theorems_own_recursions_by_their_number():
    for derivation in (*derive("proof", block="pre-norm", letters=True), *derive("difference"), *derive("recursions")):
        statement, proof = theorem(in_the_papers_letters(derivation)).split(r"\begin{proof}")
        (label,) = numbered_definitions(statement)
        assert rf"\eqref{{{label}}}" in proof
        assert "Eq.~26" not in proof and "$P" not in proof
        assert re.search(r"At \$i = 0\$, \S+ holds by \\eqref", proof)
        assert re.search(r"So \S+ holds at \$i\$(: \w+| by )", proof)


def test_recursions_have_a_number_and_the_sum_of_terms_is_defined_where_it_first_stands():
    for what in ("collapse", "contributions", "lora", "pruning", "recursions", "proof"):
        (derivation, *_) = derive(what, letters=True)
        statement, proof = theorem(derivation).split(r"\begin{proof}")
        (definitions,) = numbered_definitions(statement).values()
        assert r"\mathbf{C}_{i}^{(i)} := " in definitions
        assert {*re.findall(r"\\eqref\{(.*?)\}", proof)} <= {*re.findall(r"\\label\{(.*?)\}", statement)}, what
        if r"\mathrm{UAT}" in statement and what != "lora":
            assert statement.partition(r"\mathrm{UAT}^{R}_{i}")[2].startswith(" :="), what


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_theorem_goes_from_the_layer_before_to_layer_i(name):
    for derivation in DOCUMENTS[name]():
        assert not re.search(r"i ?\+ ?1", theorem(derivation).replace(r"_{k=i + 1}", ""))


def test_no_equation_of_a_proof_is_printed_twice_in_succession():
    (proof,) = derive("difference", block="pre-norm")
    formulas = re.findall(
        r"\\begin\{(?:align|gather|equation)\*?\}.*?\\end|^\$.*?\$\.$", theorem(proof), re.DOTALL | re.MULTILINE
    )
    assert not [formula for formula, following in pairwise(formulas) if formula == following]
    for difference in (proof, several_terms().difference()):
        assert "held" not in theorem(difference).replace("Nothing is held", "")


def test_the_closed_form_is_defined_before_it_is_proved():
    text = article(*derive("proof", block="post-norm", letters=True)[:1])
    assert text.startswith(r"\documentclass")
    statement, proof = text.split(r"\begin{proof}")
    for letter in ("P", "q", "B", "c", "C"):
        assert re.search(rf"\\mathbf{{{letter}}}_{{[^{{}}]*}}(?:\^{{\(\w[^{{}}]*\)}})? &?:=", statement), letter
    assert "By induction" in proof and ":=" not in proof


def three_parts(x):
    """Write a decoder's layer, with attention, attention to a memory, and an MLP."""
    y = x + matrix("A", 4, 4) * x
    u = y + matrix("E", 4, 4) * y
    return u + matrix("G", 4, 8) * activation(matrix("F", 8, 4) * u)


def of_heads(x):
    """Write an MLP of every head, whose own sum has the index of its head."""

    def head(h):
        return x + matrix("V", 4, 4, h) * x

    heads = summed(lambda h: head(h) + matrix("H", 4, 4, h) * head(h), 1, 3)
    return x + matrix("G", 4, 4) * activation(heads)


NAMED = {
    "two halves": (lambda: transformer_block("pre-norm"), ["y'", "x'"]),
    "no sum twice": (lambda: transformer_block("parallel"), ["x'"]),
    "three parts": (lambda: Block(three_parts, (4, 1)), ["y'", "u'", "x'"]),
    "y is a weight": (lambda: Block(lambda x: three_parts(x) + matrix("y", 4, 4) * x, (4, 1)), ["u'", "v'", "x'"]),
    "a stream of tokens": (lambda: Block(swiglu, (N, M)), ["y", "x"]),
    "an index of heads": (lambda: Block(of_heads, (4, 1)), ["x'"]),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_sum_that_a_layer_repeats_has_a_name_which_the_checks_expand(name):
    make, letters = NAMED[name]
    proof = make().prove(letters=True)
    layer = [each for each in proof.premises if isinstance(each, Step)]
    assert [each.left.letter for each in layer] == letters and proof.proved
    residual_term = next(step for step in proof.steps if step.rule.startswith("the layer is a residual term"))
    expanded = {equation.left.letter for equation in residual_term.using}
    assert {f"{letter.rstrip(chr(39))}'" for letter in letters} <= expanded
    for step in layer:
        assert f"{step.left} {step.relation} {step.right}" in str(proof)


def test_a_blocks_parameters_are_letters_in_its_proof():
    statement, proof = Block(swiglu, (N, M), "SwiGLU block").document().split("The layer is a residual term")
    assert r"\otimes" in statement
    assert r"\otimes" not in proof
    assert r"\mathbf{W}'_{i,1} \mathbf{P}_{i - 1}" in statement


def test_the_matrix_inside_an_activation_is_a_product_as_the_blocks_halves_have_it():
    def layer(x):
        y = x + held("H", N, N) * diag(held("r", N)) * x * matrix("V", M, M)
        return y + activation(diag(held("s", N)) * y * matrix("F", M, K)) * matrix("G", K, M)

    derivation = Block(layer, (N, M)).prove(letters=True)
    factor = r"\left(\operatorname{diag}\!\left(\mathbf{s}_{i}\right) \otimes \mathbf{F}_{i}^{T}\right)"
    assert derivation.proved and rf"\mathbf{{W}}'_{{i,2}} := {factor} \mathbf{{W}}'_{{i,1}}" in theorem(derivation)


def test_a_letter_of_a_block_never_has_a_theorems_meaning():
    block = Block(lambda x: x + matrix("F", 4, 4) * diag(held("g", 4)) * activation(matrix("G", 4, 4) * x), (4, 1))
    words = {letter: words for letter, _, words in rows([block.residual_terms()])}
    assert words[r"\mathbf{g}_{i}"] == "values that depend on the input, held at those on this one"
    assert words[r"\mathbf{F}_{i}"] == "constants"


def test_a_program_names_its_arrays_in_the_legend():
    legend = fragment(*DOCUMENTS["read from a program"]())
    assert "attention.pattern (held)" in legend
    assert "constants" not in legend.replace("as constants", "")


@pytest.mark.parametrize("room", [120, 240, 415])
def test_a_formula_is_broken_into_lines_that_fit_and_loses_nothing(room):
    def plain(latex):
        for old, new in ((r"\bigl", r"\left"), (r"\bigr", r"\right"), (r"\quad", ""), (r"\cdot", ""), (r"\!", "")):
            latex = latex.replace(old, new)
        return re.sub(r"\s", "", latex)

    for formula in (typeset(step.right) for step in derive("proof", block="post-norm")[1].lines):
        lines = broken(formula, room)
        assert plain("".join(lines)) == plain(formula)
        assert all(width(line) <= room * 1.02 for line in lines if line.count(r"\mathbf") > 2)
    assert broken("a", ROOM) == ["a"]


# Of every alphabet and of signs, some; and what nobody writes.
ALPHABET = [chr(code) for code in range(0x80, 0x3000, 3) if chr(code).isalpha()] + list("λΩ中文字кириллицаעש—“”…ℝ𝔸")


def scripts():
    """Return blocks with letters, functions and names of other scripts, where these aren't refused at once."""
    for letter in ("λ", "Ω", "é", "ß", "ж", "权", "ℝ", "ש"):
        with suppress(SymbolicError):
            A = matrix(letter, 4, 4)
            yield Block(lambda x, A=A: x + A * activation(A * x, "größe"), (4, 1), f"größe {letter} von {letter}")


def test_a_document_is_ascii():
    assert all(block.document().isascii() for block in scripts())
    assert document(ALPHABET).isascii()
    assert compilable("x = α") == r"x = \ensuremath{\alpha}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_pdflatex_takes_letters_of_every_script():
    check_latex(document(f"{c} $\\operatorname{{f{c}}}$\n" for c in ALPHABET))
    for block in scripts():
        check_latex(block.document())


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_a_fragment_fits_into_one_column_and_into_two():
    derived = (*derive("proof", block="pre-norm", letters=True), *derive("attention"), *derive("streams"))
    named = dict.fromkeys(derived, "derivation")
    assert "no overfull" in check_latex(two_columns(named))
    assert "no overfull" in check_latex(article(*named))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_pdflatex_takes_every_document_and_no_line_sticks_out():
    derivations = [derivation for make in DOCUMENTS.values() for derivation in make()]
    assert "no overfull" in check_latex(article(*derivations))
