"""What the README shows is what happens."""

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from duat_jax.cli import application

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DERIVATIONS = (ROOT / "docs" / "derivations.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_every_python_block_runs(capsys):
    namespace = {}
    assert len(blocks("python")) >= 2
    for block in blocks("python"):
        exec(block, namespace)
    assert "holds True" in capsys.readouterr().out


def test_the_shown_output_is_the_demos():
    (demo,) = re.findall(r"^DEMO \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    (shown,) = [block for block in blocks("text") if "The model says next" in block]
    command, _, expected = shown.partition("\n")
    assert shlex.split(command)[:3] == ["$", "duat", "explain"]
    assert shlex.split(command)[3:] == shlex.split(demo)
    result = CliRunner().invoke(application, ["explain", *shlex.split(demo)])
    assert result.exit_code == 0, result.output

    def body(text):
        return [line.rstrip() for line in text.strip().splitlines() if "error" not in line]

    actual, expected = body(result.stdout), body(expected)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert re.sub(r"\s+", " ", NUMBER.sub("#", ours)) == re.sub(r"\s+", " ", NUMBER.sub("#", theirs))
        np.testing.assert_allclose(
            [float(n) for n in NUMBER.findall(ours)], [float(n) for n in NUMBER.findall(theirs)], atol=0.11
        )


SHOWN = [
    block
    for text in (README, DERIVATIONS)
    for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    if re.match(r"\$ duat (derive|audit|verify)", block)
]


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.splitlines()[0])
def test_the_shown_derivations_audits_and_verifications_are_real(block):
    command, _, expected = block.partition("\n")
    result = CliRunner().invoke(application, shlex.split(command)[2:])
    assert result.exit_code == 0, result.output

    def lines(text):
        # Rounding differs between machines.
        return [re.sub(r"\s+", " ", re.sub(r"\d\.\de-\d+", "#", line)).strip() for line in text.strip().splitlines()]

    assert lines(result.stdout) == lines(expected)


def test_every_python_block_of_the_derivations_page_runs(capsys):
    for block in re.findall(r"```python\n(.*?)```", DERIVATIONS, re.DOTALL):
        exec(block, {})
    assert "[4. 1.]" in capsys.readouterr().out


def test_every_linked_file_exists():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if not link.startswith("http"):
            assert os.path.exists(ROOT / link), link
