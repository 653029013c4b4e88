"""Typeset expressions, and words with formulas in them, as LaTeX."""

import re
from typing import Any

from sympy import Identity, MatrixExpr, Rational, Transpose, ZeroMatrix
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE


class _Typesetter(LatexPrinter):
    """sympy's LaTeX, with sums in the order in which they were written, and transposes as the papers write them."""

    def parenthesize(self, item: Any, level: int, is_neg: bool = False, strict: bool = False) -> str:
        """Return a part of an expression, in brackets where it needs them: a fraction needs none."""
        if isinstance(item, Rational) and 0 < item < 1:
            return rf"\tfrac{{{item.p}}}{{{item.q}}}"
        return super().parenthesize(item, level, is_neg, strict)

    def _print_MatrixSum(self, expression: MatrixExpr) -> str:
        first, *rest = (self._print(summand) for summand in expression.args)
        return first + "".join(f" {text}" if text.startswith("-") else f" + {text}" for text in rest)

    def _print_Transpose(self, expression: Transpose) -> str:
        inner = self._print(expression.arg)
        simple = hasattr(expression.arg, "letter") and "'" not in expression.arg.letter and not expression.arg.upper
        return rf"{inner}^{{T}}" if simple else rf"\left({inner}\right)^{{T}}"  # a prime and a T are two superscripts

    def _print_Identity(self, expression: Identity) -> str:
        return rf"\mathbf{{I}}_{{{self._print(expression.shape[0])}}}"

    def _print_ZeroMatrix(self, expression: ZeroMatrix) -> str:
        return r"\mathbf{0}"

    def _print_Hadamard(self, expression: MatrixExpr) -> str:
        return r" \odot ".join(self.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in expression.args)

    def _print_MatrixBase(self, expression: MatrixExpr) -> str:
        text = super()._print_MatrixBase(expression)
        return text.replace(r"\frac", r"\dfrac").replace(r"\\", r"\\[4ex]") if r"\frac" in text else text


def typeset(expression: Any) -> str:
    r"""Return the LaTeX of any expression of this package.

    Args:
        expression: a matrix expression, an explicit matrix, or a number.

    Example:
        >>> from symbolic.expressions.parameter import Parameter
        >>> print(typeset(Parameter("W'", (1, 2), 3, 3).T))
        \left(\mathbf{W}'_{1,2}\right)^{T}
    """
    return _Typesetter({"mat_delim": "(", "mat_str": "matrix"}).doprint(expression)


def bracketed(factor: Any) -> str:
    r"""Return the LaTeX of a factor of a product, in brackets if it is a sum.

    Example:
        >>> from symbolic.expressions.parameter import Parameter
        >>> A = Parameter("A", (), 2, 2)
        >>> print(bracketed(A), bracketed(A + A.T))
        \mathbf{A} \left(\mathbf{A} + \mathbf{A}^{T}\right)
    """
    printer = _Typesetter({"mat_delim": "(", "mat_str": "matrix"})
    return printer.parenthesize(factor, PRECEDENCE["Mul"])


_GLYPHS = {
    "Σ": r"\Sigma", "σ": r"\sigma", "⊗": r"\otimes", "⋄": r"\diamond", "≤": r"\le", "≥": r"\ge", "ε": r"\varepsilon",
    "β": r"\beta", "Δ": r"\Delta", "⊙": r"\odot", "−": "-", "→": r"\to", "×": r"\times", "≠": r"\ne", "∈": r"\in",
    "Λ": r"\Lambda", "α": r"\alpha", "≈": r"\approx", "θ": r"\theta", "Ĥ": r"\hat{H}", "|": "|", "<": "<", ">": ">",
    "²": "^2", "′": "'", "*": r"\ast", "κ": r"\kappa", "μ": r"\mu", "γ": r"\gamma", "ρ": r"\rho",
    "Φ": r"\Phi", "Ψ": r"\Psi", "λ": r"\lambda",
}  # fmt: skip

_INDEXED = re.compile(r"(?:[^\W\d_]+|\))'?(?:[_^](?:\{[^}]*\}|[^\W\d_]+|\d+))+")

_SMALL = re.compile(
    r"(?P<letter>(?:(?![ᵢⱼₖₗₘₙₕₚᵣₛᵤ])[^\W\d_])+′?)"
    r"(?P<lower>[₀-₉₊₋ᵢⱼₖₗₘₙₕₚᵣₛᵤ,]*[₀-₉ᵢⱼₖₗₘₙₕₚᵣₛᵤ])(?:⁽(?P<upper>[^⁾]*)⁾)?"
)

_FULL_SIZE = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼₖₗₘₙₕₚᵣₛᵤ⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁱʲᵏ", "0123456789+-ijklmnhprsu0123456789+-ijk")


def _with_ascii_indices(match: re.Match) -> str:
    lower, upper = match["lower"].translate(_FULL_SIZE), (match["upper"] or "").translate(_FULL_SIZE)
    return match["letter"].replace("′", "'") + f"_{{{lower}}}" + (f"^{{({upper})}}" if upper else "")


def _formula(text: str) -> str:
    """Return the LaTeX of one indexed letter; a name of several letters is upright."""
    base = re.match(r"[^\W\d_]+", text)
    if base and len(base.group().lstrip("Δ")) > 1:
        text = rf"\mathrm{{{base.group()}}}" + text[base.end() :]
    return "$" + "".join(_GLYPHS[c] + " " if c in _GLYPHS and c not in "'*" else c for c in text) + "$"


_POWER = re.compile(r"(\d+)\^\(([^)]*)\)")

_NEGATIVE = re.compile(r"(?<![\w$])-(?=\d)")

# A letter that is a word: no article, no section such as B.2; the letter A where an operator or a letter follows.
_ALONE = re.compile(r"(?<![\w\\'’$.])(Δ?)(?:([B-Zb-z])|(A)(?=\s?[⋄⊗+=−,)]|\s[B-Z]\b))(\u0307?)('?)(?![\w'’$]|\.\w)")


def _letter(match: re.Match) -> str:
    change = r"\Delta " if match[1] else ""
    bare = match[2] or match[3]
    letter = rf"\dot{{{bare}}}" if match[4] else bare
    return f"${change}{letter}{match[5]}$"


def _words(text: str) -> str:
    text = _NEGATIVE.sub("−", _ALONE.sub(_letter, text))
    text = _POWER.sub(lambda match: f"${match[1]}^{{{match[2].replace('−', '-')}}}$", text)
    return "".join(part if part.startswith("$") else _plain(part) for part in re.split(r"(\$[^$]*\$)", text))


_ESCAPES = str.maketrans({**{character: rf"\{character}" for character in "&%#_{}"}, "^": r"\^{}"})


def _plain(text: str) -> str:
    return "".join(f"${_GLYPHS[c]} $" if c in _GLYPHS else c for c in text.translate(_ESCAPES))


def escaped(text: str) -> str:
    r"""Return words as LaTeX text, with indexed letters, Greek and relations in them as formulas.

    Example:
        >>> print(escaped("W'_{i,1} is 50 % of C₁⁽²⁾ if ε ≤ 1"))
        $W'_{i,1}$ is 50 \% of $C_{1}^{(2)}$ if $\varepsilon $ $\le $ 1
        >>> print(escaped("A norm's scale r and ΔW', e.g. 10^(−6)"))
        A norm's scale $r$ and $\Delta W'$, e.g. $10^{-6}$
    """
    text = _SMALL.sub(_with_ascii_indices, text)
    parts, end = [], 0
    for match in _INDEXED.finditer(text):
        parts += [_words(text[end : match.start()]), _formula(match.group())]
        end = match.end()
    return "".join([*parts, _words(text[end:])]).replace("$$", "")  # neighbouring formulas are one
