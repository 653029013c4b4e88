"""Packages of extras: an import that fails says how to install them, without an index that has this package."""

import ast
import re
import shlex
import tomllib
from importlib import metadata

import pytest

from duat_jax.errors import BadCheckpoint
from duat_jax.extras import install, requiring
from tests.imports import ROOT

LISTED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OF_THE_PACKAGE = LISTED.keys() - {"test", "dev", "reference", "docs", "browser", "notebook"}
MODULE = {"scikit-learn": "sklearn"}


def modules_of(extra):
    """Return the modules that an extra's packages are imported as."""
    names = [re.match(r"[\w-]+", package)[0] for package in LISTED[extra]]
    return {MODULE.get(name, name) for name in names}


def imported(node):
    """Return the packages that the statements below a node import."""
    names = {alias.name for each in ast.walk(node) if isinstance(each, ast.Import) for alias in each.names}
    names |= {each.module or "" for each in ast.walk(node) if isinstance(each, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def test_every_optional_package_is_imported_below_the_sentence_on_its_extra():
    optional, explained, used = set().union(*map(modules_of, OF_THE_PACKAGE)), {}, set()
    for file in (ROOT / "duat_jax").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        used |= imported(tree) & optional
        for block in (node for node in ast.walk(tree) if isinstance(node, ast.With)):
            match block.items[0].context_expr:
                case ast.Call(func=ast.Name("requiring"), args=[ast.Constant(extra), *_]):
                    explained.setdefault(extra, set()).update(imported(block))
    assert {extra: modules_of(extra) & packages for extra, packages in explained.items()} == {
        extra: modules_of(extra) & used for extra in OF_THE_PACKAGE
    }


@pytest.mark.parametrize("extra", sorted(OF_THE_PACKAGE))
def test_the_command_names_the_packages_with_their_bounds(extra):
    assert shlex.split(install(extra)) == ["pip", "install", *LISTED[extra]]
    assert "duat-jax" not in install(extra)


def test_a_failed_import_says_which_and_what_to_install():
    with (
        pytest.raises(BadCheckpoint, match=r"^it needs .* \(No module named 'nowhere'\): pip install 'jinja2>="),
        requiring("chat", "it", BadCheckpoint),
    ):
        import nowhere  # noqa: F401


def test_a_clone_that_was_never_installed_is_installed_with_the_extra(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert install("chat") == "pip install '.[chat]' in the clone"


def test_no_page_or_message_installs_an_extra_from_an_index_and_bounds_are_those_of_the_project():
    bounds = set().union(*LISTED.values())
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    files += [file for folder in ("docs", "duat_jax", "notebooks") for file in (ROOT / folder).rglob("*.*")]
    for file in files:
        if file.suffix in (".md", ".py", ".ipynb"):
            text = file.read_text(encoding="utf-8")
            assert not re.findall(r"duat-jax\[[\w,]+\](?! @ git)", text), file
            commands = [command for command in re.findall(r"pip install ([^`\n]*)", text) if file.suffix == ".md"]
            assert set(re.findall(r"'([\w-]+>=[^']+)'", " ".join(commands))) <= bounds, file
