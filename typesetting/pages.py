"""Formulas of the documentation: those of its pages, and those of docstrings, which the site typesets."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from typesetting.mathematics import is_formula, latex

ROOT = Path(__file__).parent.parent
PAGES = [*(ROOT / name for name in ("README.md", "CHANGELOG.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(file for folder in ("duat_jax", "symbolic") for file in (ROOT / folder).rglob("*.py"))

FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
DOLLARS = re.compile(r"\$\$(.+?)\$\$|(?<![\w\\$])\$(?!\s)([^$]+?)(?<!\s)\$(?!\w)", re.DOTALL)

Named = tuple[str, str]


def of_markdown(text: str) -> Iterator[str]:
    """Yield the formulas of a page, as LaTeX: between dollars, and between backticks those that the site typesets.

    Args:
        text: the page.
    """
    text = FENCED.sub("", text)
    yield from (latex(span) for span in SPAN.findall(text) if is_formula(span))
    yield from (displayed or inline for displayed, inline in DOLLARS.findall(SPAN.sub("", text)))


def docstrings(module: str) -> Iterator[str]:
    """Yield the docstrings of a module's source, without their examples.

    Args:
        module: the source.
    """
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield text.partition("Example:\n")[0]


def formulas() -> list[Named]:
    """Return every formula of the documentation, without delimiters, with the file that it stands in."""
    found = [(file, formula) for file in PAGES for formula in of_markdown(file.read_text(encoding="utf-8"))]
    for file in MODULES:
        for text in docstrings(file.read_text(encoding="utf-8")):
            found += [(file, formula) for formula in of_markdown(text)]
    return [(str(file.relative_to(ROOT)), formula) for file, formula in dict.fromkeys(found)]
