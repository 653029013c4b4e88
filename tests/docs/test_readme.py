"""The code of the README and of the pages prints the output that they show."""

import os
import re

import jax
import pytest
from shown_pages import README, ROOT, alike, blocks, shown_code

DERIVATIONS = (ROOT / "docs" / "explanation" / "derivations.md").read_text(encoding="utf-8")
OPERATORS = (ROOT / "docs" / "explanation" / "operators.md").read_text(encoding="utf-8")
ATTRIBUTION = (ROOT / "docs" / "explanation" / "attribution.md").read_text(encoding="utf-8")
WORDS = (ROOT / "docs" / "reference" / "words.md").read_text(encoding="utf-8")
SECANT = (ROOT / "docs" / "explanation" / "secant.md").read_text(encoding="utf-8")
OWN_CODE = (ROOT / "docs" / "tutorials" / "own-code.md").read_text(encoding="utf-8")

GUIDES = {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text(encoding="utf-8")
    for folder in ("tutorials", "how-to")
    for path in sorted((ROOT / "docs" / folder).rglob("*.md"))
}
"""Tutorials and how-to pages."""

BESIDE = {
    "how-to/own-family.md": "tests/models/test_registry.py",
    "how-to/pytorch.md": "tests/parity/test_pytorch.py",
    "how-to/recipes.md": "tests/docs/test_recipes.py",
}
"""Guides whose code another test runs: beside what it registers, with PyTorch, and section by section."""
OWN_PROCESS = "__main__"
"""What a block has that runs in a process of its own: tests/survey/test_survey.py runs it."""


def test_a_sign_or_a_digit_makes_a_line_another():
    shown = "layer 3  +0.0042  -1.25  1.6e-04  12"
    assert alike("layer 3 +0.0045 -1.24 1.8e-04 12", shown)
    for other in ("-0.0042", "+0.0142", "+0.0049"):
        assert not alike(shown.replace("+0.0042", other), shown)
    assert alike("2.67 more", "2.66 more") and not alike("2.71 more", "2.66 more")
    assert not alike(shown.replace("12", "13"), shown) and not alike(shown.replace("layer", "token"), shown)


SHOWN = {
    "README": README,
    "operators": OPERATORS,
    "attribution": ATTRIBUTION,
    "words": WORDS,
    "secant": SECANT,
    **{name: page for name, page in GUIDES.items() if name not in BESIDE and "```python" in page},
}


@pytest.mark.parametrize("page", SHOWN.values(), ids=SHOWN)
def test_output_is_shown_right_after_the_code_that_prints_it(page):
    outputs = [block for block in blocks("text", page) if not block.startswith("$ ")]
    assert [output for _, output in shown_code(page) if output] == outputs
    if page in GUIDES.values():
        assert not re.search(r"^```\n(?!\n|\Z)", page, re.MULTILINE), "a block has a language"


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWN.values(), ids=SHOWN)
def test_every_python_block_prints_what_is_shown(page, capsys):
    namespace = {}
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for block, expected in shown_code(page):
            if OWN_PROCESS in block:
                continue
            exec(block, namespace)
            actual = capsys.readouterr().out.splitlines()
            assert len(actual) == len(expected.splitlines())
            assert all(map(alike, actual, expected.splitlines())), actual


@pytest.mark.parametrize("page", GUIDES.values(), ids=GUIDES)
def test_code_of_guides_runs_after_an_installation(page):
    for block in blocks("python", page):
        assert not re.search(r"^\s*(from|import) (experiments|tests|benchmarks|training)\b", block, re.MULTILINE)


def test_the_error_shown_for_a_forgotten_mark_is_real():
    (message,) = re.findall(r"^    duat_jax\.errors\.(NotAffine: .*?)\n\n", OWN_CODE, re.DOTALL | re.MULTILINE)
    *before, block = blocks("python", OWN_CODE)
    source = block.replace('hold(jax.nn.softmax(x @ w["qk"] @ x.T), "pattern")', "jax.nn.softmax(x @ w['qk'] @ x.T)")
    (line,) = [i for i, text in enumerate(source.splitlines(), 1) if "softmax" in text]
    namespace = {}
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), pytest.raises(ValueError) as raised:
        for earlier in before:
            exec(earlier, namespace)
        exec(compile(source, "/home/me/block.py", "exec"), namespace)
    actual = f"NotAffine: {raised.value}"
    words = " ".join(message.split())
    assert f"block.py:{line} (block)" in words
    assert " ".join(actual.split()).startswith(words)


def test_every_python_block_of_the_derivations_page_runs(capsys):
    for block in re.findall(r"```python\n(.*?)```", DERIVATIONS, re.DOTALL):
        exec(block, {})
    assert "[4. 1.]" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shown_alone", "verified"), [("explanation", 1, 3), ("reference", 0, 11)])
def test_every_python_block_of_the_pages_on_blocks_runs(name, shown_alone, verified, capsys):
    page = (ROOT / "docs" / name / "blocks.md").read_text(encoding="utf-8")
    namespace = {}
    with jax.numpy_dtype_promotion("standard"):
        for block in blocks("python", page):
            exec(block, namespace)
    shown = capsys.readouterr().out
    verdicts = [line for line in shown.splitlines() if "checks hold, by induction" in line]
    assert len(verdicts) == shown_alone + verified
    assert all("NOT PROVED" not in line for line in verdicts)
    assert [line.split()[-1] for line in verdicts[shown_alone:]] == ["True"] * verified
    assert "✗" not in shown
    for of_the_program in blocks("text", page):
        assert all(line.split("(…)")[0] in shown for line in of_the_program.splitlines())


def test_the_page_on_the_form_of_several_streams_prints_what_it_shows(capsys):
    page = (ROOT / "docs" / "explanation" / "streams.md").read_text(encoding="utf-8")
    with jax.numpy_dtype_promotion("standard"):
        for block in blocks("python", page):
            exec(block, {})
    assert capsys.readouterr().out == blocks("text", page)[-1]


RUN_ELSEWHERE = {
    "explanation/attribution.md",
    "explanation/blocks.md",
    "explanation/derivations.md",
    "explanation/operators.md",
    "explanation/streams.md",
    "reference/blocks.md",
    *(name for name, page in GUIDES.items() if "```python" in page),
}
WITH_CODE = sorted(
    page.relative_to(ROOT / "docs").as_posix()
    for page in (ROOT / "docs").rglob("*.md")
    if "```python" in page.read_text(encoding="utf-8")
)


def test_pages_whose_code_another_test_runs_have_code():
    assert set(WITH_CODE) >= RUN_ELSEWHERE


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in WITH_CODE if page not in RUN_ELSEWHERE])
def test_every_python_block_of_another_page_runs(page):
    namespace = {}
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for block in blocks("python", (ROOT / "docs" / page).read_text(encoding="utf-8")):
            exec(block, namespace)


@pytest.mark.parametrize(
    "page", ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
)
def test_every_linked_file_and_heading_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        path, _, heading = link.partition("#")
        if link.startswith("http"):
            continue
        file = (ROOT / page).parent / path if path else ROOT / page
        assert os.path.exists(file), link
        if heading and not heading.startswith("duat_jax."):  # those are made of docstrings; `make docs` follows them
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}, link
