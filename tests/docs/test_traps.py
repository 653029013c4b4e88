"""Every row of the page on traps names a thread of a neighbour, and tests that there are."""

import re

from shown_pages import ROOT

PROJECTS = {"TransformerLens", "nnsight", "circuit-tracer", "captum", "shap", "inseq", "peft", "transformers"}
PROJECTS |= {"llama.cpp", "jax"}
CELL = re.compile(r"(?<!\\)\|")


def rows():
    """Return the cells of every row of the page's tables."""
    page = (ROOT / "docs" / "explanation" / "traps.md").read_text(encoding="utf-8")
    lines = [
        line for line in page.splitlines() if line.startswith("|") and not line.startswith(("| situation", "|---"))
    ]
    return [[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines]


def test_every_row_names_a_thread_and_tests_that_there_are():
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("*/test_*.py"))
    seen = set()
    for _, thread, _, names in rows():
        projects = re.findall(r"([\w.-]+)#\d+", thread)
        assert thread == "none" or projects, thread
        seen |= set(projects)
        named = re.findall(r"`(test_\w+)(?:\[([^`]*)\])?`", names)
        assert named, names
        for name, case in named:
            assert f"def {name}(" in tests and f'"{case}"' in tests if case else f"def {name}(" in tests, (name, case)
    assert seen == PROJECTS and len(rows()) >= 40
