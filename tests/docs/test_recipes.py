"""Every recipe runs as a reader runs it, and prints what the page shows."""

import re
from pathlib import Path

import jax
import pytest
from shown_pages import alike

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "recipes.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
BEFORE = PAGE.partition("\n## ")[0]


def code(text):
    return "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def output_on_page(section):
    return "".join(re.findall(r"```text\n(.*?)```", SECTIONS[section], re.DOTALL))


@pytest.fixture
def as_a_reader():
    precision = jax.config.jax_default_matmul_precision
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield
    jax.config.update("jax_default_matmul_precision", precision)


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_a_recipe_prints_what_the_page_shows(name, as_a_reader, capsys):
    exec(code(BEFORE) + code(SECTIONS[name]), {})
    printed, expected = capsys.readouterr().out, output_on_page(name)
    assert len(printed.splitlines()) == len(expected.splitlines())
    assert all(map(alike, printed.splitlines(), expected.splitlines())), printed


def test_every_recipe_is_there():
    last = "Marks of your own", "Parts with marks", "One recording, many questions"
    assert list(SECTIONS) == ["Flax NNX", "Linen", "Equinox", "A modern decoder", *last]
