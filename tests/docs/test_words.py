"""Headlines are the field's standard English, and names say what they hold."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(file for folder in ("duat_jax", "symbolic", "experiments") for file in (ROOT / folder).rglob("*.py"))
COINED = re.compile(
    r"^(What|Who|Why|How|By what|Where|When)\b|user's object|\basked of\b|\bsays? nothing of\b|\bput in words\b",
    re.IGNORECASE,
)
"""Beginnings and phrases that leave open what a module, class or function is or does."""
PRONOUNS = {"one", "found", "said", "asked", "others", "shown", "beside", "subject", "words"}
"""Names that don't say what they hold."""

CRYPTIC = re.compile(
    r"\b(no cut|is tried|stands? still|weighed by its|put in words|says? nothing of|asked of a|held is not|by lot|"
    r"what is said|what was said|yes: weighed|no zeros, yes)\b",
    re.IGNORECASE,
)
"""Phrases that readers from a neighbouring field stopped at."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def headlines(tree):
    """Yield the line and the first line of what documents a module, its public classes and functions, its constants."""
    for before, after in pairwise(tree.body):
        text = getattr(getattr(after, "value", None), "value", None)
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(text, str):
            yield after.lineno, text.splitlines()[0]
    nodes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef))]
    for node in nodes:
        if not getattr(node, "name", "").startswith("_") and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text.splitlines()[0]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_headline_names_its_object(file):
    """Or is the question of a study."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    wrong = [f"line {line}: {text}" for line, text in headlines(tree) if COINED.search(text) and not text.endswith("?")]
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_module_is_named_by_what_it_holds():
    assert not [file for file in MODULES if file.stem in PRONOUNS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_phrase_that_stopped_readers(page):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not CRYPTIC.findall(" ".join(prose.split()))


def test_a_coined_headline_is_seen():
    tree = ast.parse(
        '"""What is asked of a pruner."""\n\nN = 1\n"""How many."""\n\ndef f():\n    """Return a number."""\n'
    )
    found = [text for _, text in headlines(tree) if COINED.search(text)]
    assert sorted(found) == ["How many.", "What is asked of a pruner."]
