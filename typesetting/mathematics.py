r"""Formulas as docstrings write them, `W'_{HVO} = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ`, as LaTeX.

Docstrings are read in terminals, so their formulas are plain text between backticks.  The site typesets them:
`docs/hooks.py` looks for them on every page, and `make typeset` compiles all.
"""

import re
import unicodedata
from html import escape, unescape

NAMES = (
    "sum partial nabla infty circ diamond sigma varepsilon gamma beta alpha mu kappa theta lambda pi ell "
    "Delta Lambda Phi Psi Gamma Omega otimes odot cdot times pm in le ge ne approx to gets mapsto langle rangle Vert "
    "vert dots cdots "
)
SYMBOLS = {
    sign: f"\\{name}" for sign, name in zip("Σ∂∇∞∘⋄σεγβαμκθλπℓΔΛΦΨΓΩ⊗⊙·×±∈≤≥≠≈→←↦⟨⟩‖|…⋯", NAMES.split(), strict=True)
}
SYMBOLS |= {"−": "-", "′": "'", "ᵀ": r"^\top", "½": r"\tfrac12", "⅓": r"\tfrac13", "%": r"\%", "#": r"\#", "&": r"\&"}
SCRIPTS = {"_": "_", "^": "^", "√": r"\sqrt"}
"""Signs whose argument stands in braces: an index, an exponent, a root."""
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₋₊ᵢⱼ", "0123456789-+ij", strict=True))
ACCENTS = {"\N{COMBINING MACRON}": "bar", "\N{COMBINING TILDE}": "tilde", "\N{COMBINING CIRCUMFLEX ACCENT}": "hat"}
FUNCTIONS = {"log", "exp", "cos", "sin", "tanh", "min", "max"}

FORMULA = re.compile(
    r"[Σ∂∇∘⋄σεγβαμκθλℓΔΛΦΨΓΩ⊗⊙·×−±≤≥≠≈∈→←↦⟨⟩‖⋯½ᵀ√⁻²₀₁₂₃\u0302-\u0304]|\b[A-Za-z]['′]|\b[A-Za-z]'?_(?:\{|[^\W_]\b)"
)
"""Signs of a formula: a mathematical character, a prime, a letter with an index."""
LETTERS = re.compile(r"(?=.*\w [=+\w])(?:\b[A-Za-z]\d?\b|\bvec\b|\bdiag\b|[()=+ ])+")
"""Products and sums of single letters, such as `x W + b`."""
CODE = re.compile(r"""^\[|"|(?<!\w)'|\w\.[a-z]|--|==|[a-z]=|:,|/\w+/|·[A-Za-z*(]|⏎|->""")
"""Signs of code, of a shape, or of a token."""

PLAIN_CODE = re.compile(
    r'<div class="(?:language-text )?highlight"><pre><span></span><code>(?P<block>[^<]*)</code></pre></div>'
    r"|<p><code>(?P<paragraph>[^<]*)</code>(?P<point>[.,:]?)</p>"
    r"|<pre.*?</pre>|<code>(?P<span>[^<]*)</code>",
    re.DOTALL,
)
"""Code without a language: an indented block, a paragraph, a span; and blocks of code, which stay."""
TOKEN = re.compile(
    rf"(?P<accented>\w[{''.join(ACCENTS)}])"
    r"|(?P<name>[A-Za-z]{2,}(?:_[A-Za-z]{2,})*)"
    r"|(?P<numbered>[A-Za-z](?P<number>\d+))"
    rf"|(?P<script>[{''.join(SCRIPTS)}])"
    rf"|(?P<raised>[{''.join(RAISED)}]+)|(?P<lowered>[{''.join(LOWERED)}]+(?:,[{''.join(LOWERED)}]+)*)"
    r"|(?P<sign>.)"
)

EQUATION = re.compile("[=≤<≈↦]")
"""Signs of an equation, which stands on a line of its own where it is a paragraph."""


def is_formula(text: str) -> bool:
    """Return whether a text between backticks is a formula.

    Args:
        text: the text.

    Example:
        >>> is_formula("c_j"), is_formula("x_L = P x_0 + q"), is_formula("[tokens − 1]"), is_formula("c_attn")
        (True, True, False, False)
    """
    has_signs = FORMULA.search(unicodedata.normalize("NFD", text)) or LETTERS.fullmatch(text)
    return bool(has_signs) and not CODE.search(text)


def _argument(text: str, place: int) -> tuple[str, int]:
    """Return what an index, an exponent or a root at a place has in it, and the place after it."""
    if text[place] not in "({":
        word = re.compile(r"[A-Za-z]{2,}(?:_[A-Za-z]{2,})+|[A-Za-z0-9]+|.").match(text, place)
        assert word is not None
        return word[0], word.end()
    depth, end = 1, place + 1
    while depth:
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[end], 0)
        end += 1
    return text[place + 1 : end - 1], end


def _name(name: str, before: str, after: str) -> str:
    """Return a name of two letters or more as LaTeX, apart from its neighbours where these are no operators."""
    if len(name) == 2 and ((name.isupper() and after[:1] != "(") or after[:1] == "ᵀ" or re.fullmatch("d[x-z]", name)):
        return name  # a product of matrices or vectors, a differential
    if name in FUNCTIONS:
        return f"\\{name}"
    upright = "operatorname" if after.startswith("(") else "mathrm"
    apart = re.compile(r"[\w(⟨‖√)]")
    left = r"\," if re.search(r"(?<![A-Za-z]{2})[\w)] $", before) else ""
    right = r"\," if after.startswith(" ") and apart.match(after[1:]) else ""
    return left + rf"\{upright}{{{name}}}".replace("_", r"\_") + right


def _braced(script: str) -> str:
    """Return an index or an exponent, in braces where it has several characters."""
    return script if len(script) == 1 else f"{{{script}}}"


def latex(text: str) -> str:
    r"""Return a formula as LaTeX.

    Args:
        text: the formula as plain text.

    Example:
        >>> print(latex("W'_{HVO} = Σ_h H_h ⊗ (W_{V,h} W_{O,h})ᵀ"))
        W'_{HVO} = \sum_h H_h \otimes (W_{V,h} W_{O,h})^\top
        >>> print(latex("s(x) = 1/√(mean(x²) + ε)"))
        s(x) = 1/\sqrt{\operatorname{mean}(x^2) + \varepsilon}
    """
    text = "".join(
        letters if (letters := unicodedata.normalize("NFD", letter))[1:] in ACCENTS else letter
        for letter in unicodedata.normalize("NFC", " ".join(text.split()))
    )
    written, place = "", 0
    while found := TOKEN.match(text, place):
        token, start, place = found[0], place, found.end()
        match found.lastgroup:
            case "accented":
                written += f"\\{ACCENTS[token[1]]}{{{SYMBOLS.get(token[0], token[0])}}}"
            case "name":
                written += _name(token, text[:start], text[place:])
            case "numbered":
                written += f"{token[0]}_{_braced(found['number'])}"
            case "script":
                argument, place = _argument(text, place)
                argument = (
                    argument if re.fullmatch(r"[A-Z]+|[a-z]{1,2}(,[a-z]{1,2})*|[\d,]+", argument) else latex(argument)
                )
                written += SCRIPTS[token] + (
                    argument if re.fullmatch("[^√]\\w", token + argument) else f"{{{argument}}}"
                )
            case "raised" | "lowered":
                sign, digits = ("^", RAISED) if found["raised"] else ("_", LOWERED)
                written += sign + _braced("".join(digits.get(digit, digit) for digit in token))
            case _:
                command = SYMBOLS.get(token, token)
                is_word = re.search(r"\\[A-Za-z]+$", command) and text[place : place + 1].isalpha()
                written += f"{command} " if is_word else command
    # A prime is an exponent, and has to be in braces before another one.
    return re.sub(r"([A-Za-z]'(?:_(?:\w|\{[^{}]*\}))?)(?=\^)", r"{\1}", written).strip()


def typeset(html: str) -> str:
    r"""Return a page whose formulas, which docstrings have between backticks or as indented blocks, are typeset.

    Args:
        html: the page.

    Example:
        >>> typeset("<p>Its bias <code>c_j</code> and <code>name</code>.</p>")
        '<p>Its bias <span class="arithmatex">\\(c_j\\)</span> and <code>name</code>.</p>'
    """

    def formula(found: re.Match[str]) -> str:
        lines = unescape(found["block"] or found["paragraph"] or found["span"] or "").strip().splitlines()
        if not lines or not all(map(is_formula, lines if found["block"] else [" ".join(lines)])):
            return found[0]
        if found["span"] or not (found["block"] or EQUATION.search(lines[0])):
            span = f'<span class="arithmatex">\\({escape(latex(" ".join(lines)))}\\)</span>'
            return span if found["span"] else f"<p>{span}{found['point']}</p>"
        written = [latex(line) for line in lines] if found["block"] else [latex(" ".join(lines)) + found["point"]]
        rows = escape(r" \\ ".join(written))
        return rf'<div class="arithmatex">\[\begin{{gathered}} {rows} \end{{gathered}}\]</div>'

    return PLAIN_CODE.sub(formula, html)
