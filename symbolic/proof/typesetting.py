"""Derivations as LaTeX documents."""

from collections.abc import Iterable

from symbolic.expressions.latex import escaped
from symbolic.proof.derivation import Derivation

_PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[a4paper,landscape,margin=15mm]{geometry}
\usepackage{amsmath}
\usepackage{amssymb}
\allowdisplaybreaks
\setcounter{MaxMatrixCols}{40}
\begin{document}
"""


def section(derivation: Derivation) -> str:
    """Return a derivation as a section of a LaTeX document, whose equations may break over pages.

    Args:
        derivation: the derivation.
    """
    remark = escaped(derivation.remark) + "\n" if derivation.remark else ""
    return (
        f"\\section*{{{escaped(derivation.title)}}}\n{remark}\\begin{{align*}}\n{derivation.rows()}\n\\end{{align*}}\n"
        f"\\emph{{{derivation.verdict}.}}\n"
    )


def document(sections: Iterable[str]) -> str:
    """Return a complete LaTeX file.

    Args:
        sections: its sections, as `section` returns them.
    """
    return _PREAMBLE + "\n".join(sections) + "\n\\end{document}\n"
