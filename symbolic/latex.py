"""LaTeX of expressions and of words with formulas in them."""

import re
from typing import Any

from sympy import Identity, MatrixExpr, Transpose, ZeroMatrix
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE


class _Typesetter(LatexPrinter):
    """sympy's LaTeX, with transposes and identities as the papers write them."""

    def _print_Transpose(self, expression: Transpose) -> str:
        inner = self._print(expression.arg)
        if not hasattr(expression.arg, "letter"):
            return rf"\left({inner}\right)^{{T}}"
        simple = "'" not in expression.arg.letter and not expression.arg.upper
        return rf"{inner}^{{T}}" if simple else rf"{{{inner}}}^{{T}}"  # a prime and a T are two superscripts

    def _print_Identity(self, expression: Identity) -> str:
        return r"\mathbf{I}"

    def _print_ZeroMatrix(self, expression: ZeroMatrix) -> str:
        return r"\mathbf{0}"

    def _print_Hadamard(self, expression: MatrixExpr) -> str:
        return r" \odot ".join(self.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in expression.args)


def typeset(expression: Any) -> str:
    """Return the LaTeX of any expression of this package.

    Args:
        expression: a matrix expression, an explicit matrix, or a number.

    Example:
        >>> from symbolic.symbols import Parameter
        >>> print(typeset(Parameter("W'", (1, 2), 3, 3).T))
        {\\mathbf{W}'_{1,2}}^{T}
    """
    return _Typesetter({"mat_delim": "(", "mat_str": "matrix"}).doprint(expression)


_GLYPHS = {
    "Σ": r"\Sigma", "σ": r"\sigma", "⊗": r"\otimes", "⋄": r"\diamond", "≤": r"\le", "≥": r"\ge", "ε": r"\varepsilon",
    "β": r"\beta", "Δ": r"\Delta", "⊙": r"\odot", "−": "-", "→": r"\to", "×": r"\times", "≠": r"\ne", "∈": r"\in",
    "Λ": r"\Lambda", "α": r"\alpha", "≈": r"\approx", "Ĥ": r"\hat{H}",
}  # fmt: skip
_INDEXED = re.compile(r"(?:\w|\))'?(?:[_^](?:\{[^}]*\}|\w))+")


def escaped(text: str) -> str:
    """Return words as LaTeX text, with indexed letters and Greek in them as mathematics.

    Args:
        text: plain words, in which `W'_{i,1}` and `σ` may occur.
    """

    def plain(words: str) -> str:
        for character, replacement in (("&", r"\&"), ("%", r"\%"), ("#", r"\#"), ("_", r"\_")):
            words = words.replace(character, replacement)
        return "".join(f"${_GLYPHS[c]}$" if c in _GLYPHS else c for c in words)

    def mathematics(found: str) -> str:
        return "$" + "".join(_GLYPHS[c] + " " if c in _GLYPHS else c for c in found) + "$"

    parts, end = [], 0
    for match in _INDEXED.finditer(text):
        parts += [plain(text[end : match.start()]), mathematics(match.group())]
        end = match.end()
    return "".join([*parts, plain(text[end:])])
