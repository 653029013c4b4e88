"""Widths of formulas are those of TeX, and theorems take as much of a page as they do in a paper."""

import re
import shutil
import subprocess

import pytest
from sympy import MatrixBase

from symbolic.catalogue import derive
from symbolic.expressions.latex import typeset
from symbolic.proof.layer_index import from_the_layer_before
from symbolic.proof.line_breaks import width
from symbolic.proof.typesetting import document, fragment

pytestmark = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")


def measured(body, folder):
    """Return the numbers of points that a document prints, once its references are resolved."""
    (folder / "a.tex").write_text(document([body], 246.0))
    for _ in range(2):
        log = subprocess.run(["pdflatex", "-interaction=nonstopmode", "a.tex"], cwd=folder, capture_output=True)
    return [float(points) for points in re.findall(rb"^BOX ([\d.]+)pt", log.stdout, re.MULTILINE)]


def test_widths_are_those_of_tex(tmp_path):
    named = (
        *derive("recursions"), *derive("proof", block="pre-norm-gated", letters=True), *derive("difference"),
        *derive("collapse"), *derive("linear"), *derive("streams"), *derive("unroll", depth=32),
    )  # fmt: skip
    sides = (side for each in named for step in from_the_layer_before(each).lines for side in (step.left, step.right))
    formulas = [typeset(side) for side in dict.fromkeys(sides) if side is not None and not isinstance(side, MatrixBase)]
    body = "\n".join(rf"\setbox0\hbox{{$\displaystyle {each}$}}\typeout{{BOX \the\wd0}}" for each in formulas)
    widths = measured(body, tmp_path)
    assert len(widths) == len(formulas) > 100
    ratios = sorted(width(formula) / points for formula, points in zip(formulas, widths, strict=True) if points > 60)
    # Lines that are narrower than they are thought to be are never too wide; the margin of a line is 2%.
    assert ratios[0] > 0.98 and ratios[len(ratios) // 2] < 1.04 and ratios[-1] < 1.2


SHARES = {  # of a page of two columns, each of 246 by 703 points; the closed form of a block without biases: a third
    "proof": ({}, 0.325),
    "proof of pre-norm": ({"what": "proof", "block": "pre-norm"}, 0.365),
    "block pre-norm": ({"what": "block", "block": "pre-norm"}, 0.23),
    "recursions": ({}, 0.39),
    "collapse": ({}, 0.44),
    "contributions": ({}, 0.47),
    "difference": ({}, 0.62),
    "difference of pre-norm": ({"what": "difference", "block": "pre-norm"}, 0.89),
}


def test_a_theorem_takes_as_much_of_a_page_as_in_a_paper(tmp_path):
    shares = {}
    for name, (arguments, _) in SHARES.items():
        derived = derive(**{"what": name, "letters": True, **arguments})[:1]
        body = (
            r"\setbox0\vbox{" + fragment(*derived, line=246.0) + "\n"
            r"}\typeout{BOX \the\dimexpr\ht0+\dp0\relax}\setbox0\vbox to 1pt{\unvbox0\vss}\noindent\box0"
        )
        folder = tmp_path / name
        folder.mkdir()
        (points,) = measured(body, folder)
        shares[name] = points / (2 * 703)
    assert {name: share for name, share in shares.items() if share > SHARES[name][1]} == {}
