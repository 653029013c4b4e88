"""Formulas are typeset: pages have them between dollars, and the site finds those of docstrings."""

import re

import pytest

from experiments.pages import MARK
from typesetting.mathematics import is_formula, latex, typeset
from typesetting.pages import DOLLARS, FENCED, MODULES, PAGES, SPAN, docstrings, formulas


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_a_page_has_its_formulas_between_dollars(page):
    text = MARK.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
    assert not [span for span in SPAN.findall(text) if is_formula(span) and span != "½"]


def test_every_formula_is_latex():
    every = formulas()
    assert len(every) > 600
    for where, formula in every:
        assert formula.count("{") == formula.count("}"), (where, formula)
        assert formula.isascii(), (where, formula)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("W'_{HVO} = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ", r"W'_{HVO} = \sum_h H_h \otimes (W_{V,h} W_{O,h})^\top"),
        ("x_L = P x_0 + q + Σ_j C_j σ(B_j x_0 + c_j)", r"x_L = P x_0 + q + \sum_j C_j \sigma(B_j x_0 + c_j)"),
        ("√((‖A v − σ u‖² + 1) / 2)", r"\sqrt{(\Vert A v - \sigma u\Vert^2 + 1) / 2}"),
        ("Δ(a b) = ā Δb + b̄ Δa", r"\Delta(a b) = \bar{a} \Delta b + \bar{b} \Delta a"),
        ("m_corrupted", r"m_{\mathrm{corrupted}}"),
        ("A_ij", "A_{ij}"),
        ("W3 σ(W2 x + b2)", r"W_3 \sigma(W_2 x + b_2)"),
        ("C_KK⁻¹ C_KR", "C_{KK}^{-1} C_{KR}"),
        ("W'_{i+1,1}ᵀ u", r"{W'_{i+1,1}}^\top u"),
        ("θ_k = base^(−2k / features)", r"\theta_k = \mathrm{base}^{-2k / \mathrm{features}}"),
        ("diag(κ_i) Δz_i", r"\operatorname{diag}(\kappa_i) \Delta z_i"),
    ],
)
def test_a_formula_in_plain_text_becomes_latex(text, expected):
    assert latex(text) == expected


@pytest.mark.parametrize(
    "code", ["c_attn", "[tokens − 1]", "'next token'", "duat.load", "--edit", "·default", "x", "->"]
)
def test_code_stays_code(code):
    assert not is_formula(code)


def test_a_page_keeps_its_blocks_of_code_and_typesets_the_rest():
    block = '<pre><span></span><code>x_0 = σ(<span class="n">y</span>)</code></pre>'
    assert typeset(block) == block
    assert typeset("<p><code>y = A x_0</code>.</p>") == (
        r'<div class="arithmatex">\[\begin{gathered} y = A x_0. \end{gathered}\]</div>'
    )
    assert typeset("<p><code>c_j</code>.</p>") == r'<p><span class="arithmatex">\(c_j\)</span>.</p>'
    assert typeset("<li><code>a &lt; x_0</code></li>") == r'<li><span class="arithmatex">\(a &lt; x_0\)</span></li>'
    indented = (
        '<div class="language-text highlight"><pre><span></span><code>x_1 = σ(x_0)\nx_2 = σ(x_1)\n</code></pre></div>'
    )
    assert r"\[\begin{gathered} x_1 = \sigma(x_0) \\ x_2 = \sigma(x_1) \end{gathered}\]" in typeset(indented)
    shell = '<div class="highlight"><pre><span></span><code>make demo\n</code></pre></div>'
    assert typeset(shell) == shell


def test_a_price_is_no_formula():
    assert not DOLLARS.findall("from $5 to $6") and DOLLARS.findall("the map $A$ and")


def test_docstrings_have_no_latex_but_where_they_are_about_it():
    written = [
        (module, text)
        for module in MODULES
        for text in docstrings(module.read_text(encoding="utf-8"))
        if re.search(r"\\(sum|sigma|otimes|frac)\b", text) and "LaTeX" not in text
    ]
    assert not written
