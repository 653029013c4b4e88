"""Compile every formula that the project can print, with LaTeX and with KaTeX, and those of the documentation.

Run `make typeset`, or `npm ci --prefix typesetting` and then `python -m typesetting.check`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx

from duat_jax.nn import BLOCKS as BLOCK_TYPES
from duat_jax.nn import make_stack
from symbolic import Block, activation, diag, hadamard, held, matrix, ones, sizes, vector
from symbolic.audit.audit import audit
from symbolic.audit.claim import Finding
from symbolic.audit.figure import figure_2
from symbolic.catalogue import KINDS, WHAT, derive
from symbolic.equality.normal_form import normal_form
from symbolic.errors import SymbolicError
from symbolic.expressions.latex import escaped
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step
from symbolic.proof.typesetting import document, fragment
from symbolic.theorems.notation import in_the_papers_letters
from symbolic.theorems.residual_stack import ResidualStack
from typesetting import pages

KATEX = Path(__file__).parent / "katex.mjs"
_COLUMN = 246.0  # points: the width of a column of two in most journals
MARK = "%% "  # begins the comment that names a part of the document
Named = tuple[str, str]  # a name, and LaTeX


class TypesettingError(Exception):
    """A formula that doesn't compile, or a program that is missing."""


def derivations() -> dict[Derivation, str]:
    """Return every derivation that `duat derive` accepts, and others, with its name; one with several has the first."""
    calls = {"derive('proof')": derive("proof"), "derive('unroll', depth=32)": derive("unroll", depth=32)}
    for what, block, depth in product(WHAT, (None, *KINDS), (None, 1, 3, 4)):
        with suppress(SymbolicError):
            asked = derive(what, block=block, depth=depth, letters=True)
            calls[f"derive({what!r}, block={block!r}, depth={depth}, letters=True)"] = asked
    calls |= {f"{call}, in the papers' letters": tuple(map(in_the_papers_letters, of)) for call, of in calls.items()}
    own = several_terms()
    calls["a block of several terms"] = (
        own.residual_terms(),
        own.recursions(),
        own.prove(),
        own.unroll(2),
        own.unroll(8),
        own.collapse(),
        own.contributions(),
        own.difference(),
    )
    stack = make_stack(BLOCK_TYPES["post-norm"](features=4, heads=2, neurons=6), layers=1, rngs=nnx.Rngs(0))
    read = Block.from_function(stack.blocks[0], jnp.ones((3, 4)))
    calls["a block read from a program"] = (read.residual_terms(), read.recursions(), read.prove())
    named: dict[Derivation, str] = {}
    for call, results in calls.items():
        for k, derivation in enumerate(results):
            named.setdefault(derivation, f"{call}[{k}], {derivation.title}")
    x = ResidualStack().x(0)
    doubtful = tuple(Step(x, x, "not proved", False, relation) for relation in ("=", ":=", "≤", "<", "≈"))
    return {**named, Derivation("Steps without a proof", doubtful): "steps without a proof"}


def several_terms() -> Block:
    """Return a block on tokens and features in which one term flows into another."""
    tokens, features, neurons = sizes("N M K")
    pattern, scale, gate = held("H", tokens, tokens), held("r", tokens), held("g", tokens, neurons)
    value, first = matrix("V", features, features), matrix("F", features, neurons)
    second, third = matrix("G", neurons, features), matrix("E", features, neurons)

    def layer(x: Any) -> Any:
        y = x + activation(x * first + ones(tokens) * vector("f", neurons).T, "gelu") * second
        y = y + pattern * y * value
        return diag(scale) * (y + hadamard(gate, activation(y * third, "tanh")) * second)

    return Block(layer, (tokens, features), "block of several terms")


def name_of(finding: Finding) -> str:
    """Return the name of a finding: its equation and source.

    Args:
        finding: the finding.
    """
    return f"audit, {finding.equation} ({finding.source})"


def fitted(latex: str) -> str:
    """Return a displayed formula that is made smaller where a line can't hold it: what is printed isn't broken.

    Args:
        latex: the formula.
    """
    box = rf"\sbox0{{$\displaystyle {latex}$}}"
    return rf"\[{box}\ifdim\wd0>\linewidth\resizebox{{\linewidth}}{{!}}{{\usebox0}}\else\usebox0\fi\]"


def finding_section(finding: Finding) -> str:
    """Return a finding as a section of a LaTeX document.

    Args:
        finding: the finding.
    """
    equation = f"Equation {finding.equation}" if finding.equation.isdigit() else finding.equation
    parts = [
        rf"\section*{{{escaped(f'{equation} ({finding.source})')}}}",
        fitted(finding.printed),
        rf"\emph{{{escaped(finding.verdict)}.}} {escaped(finding.reason)}",
    ]
    if finding.corrected:
        parts += ["Corrected:", fitted(finding.corrected)]
    return "\n".join([*parts, "", escaped(finding.check)]) + "\n"


def objects() -> list[Named]:
    """Return a handful of single expressions as a notebook shows them, with their names."""
    s = ResidualStack()
    matrix, vector = s.W(1, 2), s.b(1, 2)
    shown = {
        "a parameter": s.C(1, 3),
        "a product with a transpose": matrix * matrix.T,
        "an activation": s.activation(1),
        "a diagonal matrix": Diagonal(vector),
        "a product entry by entry": Hadamard(vector, vector),
        "a Kronecker product": Kronecker(matrix, matrix.T),
        "vec": Vec(matrix),
        "a sum with bounds": s.recursions[-1].right,
        "the general term": s.general_term(1),
        "the closed form": s.form(2),
        "a normal form": normal_form(s.x(3), [s.equation_20]).expression(),
        "figure 2 of the appendix": figure_2(),
    }
    return [(name, expression._repr_latex_()) for name, expression in shown.items()]


def formula(latex: str) -> str:
    """Return what stands between the delimiters.

    Args:
        latex: a formula as a notebook takes it.
    """
    return latex.strip("$").removeprefix(r"\displaystyle ")


def formulas(named: dict[Derivation, str], findings: tuple[Finding, ...]) -> list[Named]:
    """Return every formula, without delimiters, with its name; prose as the text of a formula.

    Args:
        named: derivations with their names.
        findings: the findings of the audit.
    """
    found = [(name, latex) for d, name in named.items() for latex in (d.latex(), d._repr_latex_())]
    for f in findings:
        prose = [rf"\text{{{escaped(words)}}}" for words in (f.verdict, f.reason, f.check)]
        found += [(name_of(f), latex) for latex in (f.printed, f.corrected, f._repr_latex_(), *prose) if latex]
    return [(name, formula(latex)) for name, latex in [*found, *objects()]]


def whole_document(named: dict[Derivation, str], findings: tuple[Finding, ...], shown: list[Named]) -> str:
    """Return one LaTeX file: all derivations, the audit, and every formula again in a box that isn't printed.

    A comment with its name precedes each part.

    Args:
        named: derivations with their names.
        findings: the findings of the audit.
        shown: formulas without delimiters, with their names.
    """
    parts = [(name, fragment(derivation)) for derivation, name in named.items()]
    parts += [(name_of(finding), finding_section(finding)) for finding in findings]
    parts += [(name, f"\\sbox{{0}}{{$\\displaystyle {latex}$}}\n") for name, latex in shown]
    return document(f"{MARK}{name}\n{latex}" for name, latex in parts)


def two_columns(named: dict[Derivation, str]) -> str:
    """Return one LaTeX file in two columns with every derivation as a fragment for them.

    Args:
        named: derivations with their names.
    """
    parts = (f"{MARK}{name}\n{fragment(derivation, line=_COLUMN)}" for derivation, name in named.items())
    return document(parts, _COLUMN, columns=2)


def name_at(tex: str, line: str) -> str:
    """Return the name of the part that a line belongs to.

    Args:
        tex: the document.
        line: the number of the line, from 1.
    """
    before = reversed(tex.splitlines()[: int(line)])
    return next((text.removeprefix(MARK) for text in before if text.startswith(MARK)), "the preamble")


def run(program: list[str], package: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it printed.

    Args:
        program: the program and its arguments.
        package: what to install if there is no such program.
        options: options of `subprocess.run`.

    Raises:
        TypesettingError: if there is no such program.
    """
    try:
        return subprocess.run(program, capture_output=True, encoding="utf-8", errors="replace", **options)
    except FileNotFoundError as error:
        raise TypesettingError(f"there is no {program[0]}: install {package}") from error


def check_latex(tex: str) -> str:
    """Compile a document with pdflatex and return how many pages it has.

    Args:
        tex: the document.

    Raises:
        TypesettingError: if it doesn't compile, naming the formula, or if a line is too wide.
    """
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-file-line-error", "formulas.tex"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "formulas.tex").write_text(tex, encoding="utf-8")
        # One message a line, or LaTeX breaks them after 79 characters.
        result = run(command, "texlive-latex-base", cwd=folder, env=os.environ | {"max_print_line": "1000"})
    log = result.stdout
    if result.returncode:
        error = re.search(r"^\./formulas\.tex:(\d+):.*?^l\.\d+.*?\n.*?$", log, re.MULTILINE | re.DOTALL)
        if error is None:
            raise TypesettingError(f"{log[-2000:]}\nLaTeX stopped: see the messages above")
        name = name_at(tex, error[1])
        raise TypesettingError(f"{error[0]}\nLaTeX doesn't take {name}: correct what symbolic/ prints for it")
    pages = re.findall(r"^Output written on .*\((\d+) pages?", log, re.MULTILINE)
    overfull = re.findall(r"^Overfull \\[hv]box \(([\d.]+)pt too \w+\)(?:.*?lines? (\d+))?", log, re.MULTILINE)
    if overfull:
        names = "\n".join(
            f"  {float(size):.0f} pt: {name_at(tex, line) if line else 'a page'}" for size, line in overfull
        )
        raise TypesettingError(f"{names}\nlines are wider than the page: break them in symbolic/proof/line_breaks.py")
    return f"LaTeX: {pages[0]} pages, no overfull box"


def check_katex(named: list[Named]) -> str:
    """Render formulas with KaTeX and return how many there are.

    Args:
        named: formulas without delimiters, with their names.

    Raises:
        TypesettingError: naming every formula that KaTeX doesn't take.
    """
    result = run(["node", str(KATEX)], "nodejs", input=json.dumps([latex for _, latex in named]))
    if result.returncode:
        raise TypesettingError(f"{result.stderr}\nKaTeX didn't run: install it with `npm ci --prefix typesetting`")
    failures = [f"{named[index][0]}: {' '.join(message.split())}" for index, message in json.loads(result.stdout)]
    if failures:
        what_to_do = f"KaTeX doesn't take {len(failures)} formulas: correct the page, or what symbolic/ prints for them"
        raise TypesettingError("\n".join([*failures, what_to_do]))
    return f"KaTeX: {len(named)} formulas"


def main() -> None:
    """Compile everything; exit with 1 and say what to do if something doesn't compile."""
    named, findings = derivations(), audit()
    shown = formulas(named, findings)
    problems = []
    for check in (
        partial(check_latex, whole_document(named, findings, shown)),
        partial(check_latex, two_columns(named)),
        partial(check_katex, [*shown, *pages.formulas()]),
    ):
        try:
            print(check())
        except TypesettingError as error:
            problems.append(str(error))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
