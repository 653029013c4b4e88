"""Typeset the matrices and vectors of a formula in bold, as the papers do."""

import re

_BARE = re.compile(r"\\[A-Za-z]+|\\.|[_^](?:\{[^{}]*\}|.)|\{[^{}]*\}|UAT|σ|[WxbPqBCcszyhHVQKX]")


def bold(text: str) -> str:
    r"""Return a formula with its matrices and vectors in bold, as the papers set them.

    Args:
        text: LaTeX with bare letters, `σ` and `UAT`; indices, words and commands stay.

    Example:
        >>> print(bold(r"x'_{i}=W'_{i,1}x'_{0}\text{ with }UAT_{i}"))
        \mathbf{x}'_{i}=\mathbf{W}'_{i,1}\mathbf{x}'_{0}\text{ with }\mathrm{UAT}^{R}_{i}
    """

    def typeset(match: re.Match) -> str:
        token = match.group()
        known = {"σ": r"\sigma", "UAT": r"\mathrm{UAT}^{R}"}
        return known.get(token, rf"\mathbf{{{token}}}" if token.isalpha() else token)

    return _BARE.sub(typeset, text)
