"""The beginning and the imports of notebooks: one address, no change of the runtime's JAX, public names alone."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell
from test_site import DIRECTIVES

import duat_jax
import symbolic
from notebooks.execute import code_hash
from notebooks.opening import ADDRESS, EXTRAS, FILES, ROOT, opened
from tests.test_architecture import dotted

HOUSES = ("duat_jax", "symbolic")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EVERY = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *NOTEBOOKS]


def cells(path, kind):
    """Return the text of a notebook's cells of a kind."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


@EVERY
def test_a_notebook_begins_with_its_badge_and_installs_from_the_address_of_the_project(path):
    notebook = nbformat.read(path, as_version=4)
    assert opened(nbformat.read(path, as_version=4), path) == notebook
    colab = f"https://colab.research.google.com/github/{FILES.partition('.com/')[2]}/notebooks/{path.name}"
    assert f"]({colab})" in cells(path, "markdown")[0]
    assert f'git+{ADDRESS}"' in cells(path, "code")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_address_that_is_shown_is_that_of_the_project_and_there_before_a_release(page):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:git\+|git clone )(https://[^\s\"'\\]+)", text)) <= {ADDRESS}
    assert set(re.findall(r"\]\((https://[^)\s]+/blob/[^/\s]+)/", text)) <= {
        FILES,
        f"https://colab.research.google.com/github/{FILES.partition('.com/')[2]}",
    }


@EVERY
def test_links_are_absolute(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", "\n".join(cells(path, "markdown"))):
        assert link.startswith("https://"), link
        if link.startswith(FILES):
            assert (ROOT / link.removeprefix(f"{FILES}/").partition("#")[0]).is_file(), link


@pytest.fixture(scope="module")
def shell():
    return InteractiveShell()


@pytest.mark.parametrize(
    ("runtime", "jax", "asked"),
    [
        ({"duat_jax", "optax", "jax", "libtpu"}, "0.9.1", None),
        (set(), None, ""),
        ({"jax"}, "0.9.1", ""),
        ({"jax", "jax_cuda12_plugin", "numpy"}, "0.9.1", "jax[cuda12] numpy==2.1.3"),
        ({"jax", "numpy"}, "0.10.0", "numpy==2.1.3"),
        ({"jax", "libtpu"}, "0.10.0", ""),
        ({"jax", "jax_cuda12_plugin"}, "0.11.0.dev1", ""),
        ({"jax", "libtpu"}, "0.9.1", "jax[tpu]"),
        ({"jax", "jax_cuda12_plugin"}, "0.9.1", "jax[cuda12]"),
        ({"jax", "jax_cuda13_plugin"}, "0.9.1", "jax[cuda13]"),
    ],
)
@EVERY
def test_the_first_cell_leaves_a_jax_that_is_new_enough_alone(path, runtime, jax, asked, shell, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    commands = []
    shell.register_magic_function(commands.append, magic_name="pip")
    shell.register_magic_function(lambda _: None, magic_name="matplotlib")
    monkeypatch.setattr(util, "find_spec", lambda name: name if name in runtime else None)
    monkeypatch.setattr(metadata, "version", {"jax": jax, "numpy": "2.1.3"}.__getitem__)
    ran = shell.run_cell(cells(path, "code")[0])
    ran.raise_error()
    package = f"duat-jax{EXTRAS.get(path.stem, '')} @ git+{ADDRESS}"
    assert commands == ([] if asked is None else [f'install -q "{package}" {asked}'])


@EVERY
def test_in_a_clone_the_first_cell_installs_the_clone(path, shell, monkeypatch):
    commands = []
    shell.register_magic_function(commands.append, magic_name="pip")
    shell.register_magic_function(lambda _: None, magic_name="matplotlib")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    monkeypatch.chdir(path.parent)
    shell.run_cell(cells(path, "code")[0]).raise_error()
    assert commands == [f'install -q "..{EXTRAS.get(path.stem, "")}" ']


@EVERY
def test_outputs_are_kept_and_are_those_of_the_code(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.metadata.get("executed") == code_hash(notebook), "run `make notebook`, and commit the outputs"
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


@EVERY
def test_outputs_say_nothing_of_the_machine_that_they_were_made_on(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            shown = " ".join([output.get("text", ""), *(data[kind] for kind in data if kind.startswith("text/"))])
            assert not re.search(r"/(tmp|root|home|Users|work|var|opt)/|site-packages|Warning", shown)


def test_notebooks_with_their_outputs_stay_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 3e6


def names_of(path):
    """Return every name of this project that a notebook imports, or reads off what it imported, in full."""
    names, bound = set(), {}
    for code in cells(path, "code"):
        for node in ast.walk(ast.parse(TransformerManager().transform_cell(code))):
            if isinstance(node, ast.Import):
                bound |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                bound |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Attribute):
                names.add(dotted(node, bound))
    return {name for name in names | set(bound.values()) if (name or "").partition(".")[0] in HOUSES}


@EVERY
def test_everything_that_a_notebook_takes_from_the_package_is_public_and_has_a_place_in_the_api(path):
    namespaces = {f"{house.__name__}.{name}" for house in (duat_jax, symbolic) for name in house.NAMESPACES}
    public = {"duat_jax", "symbolic", *namespaces, *DIRECTIVES}

    def is_public(name):
        # An attribute of what is public, such as a method, is documented with it.
        return any(name == each or name.startswith(f"{each}.") for each in DIRECTIVES) or name in public

    assert [name for name in sorted(names_of(path)) if not is_public(name)] == []


def test_only_a_notebook_that_clones_the_repository_imports_its_experiments():
    for path in NOTEBOOKS:
        code = "\n".join(cells(path, "code"))
        assert ("git clone" in code) == bool(re.search(r"^(?:from|import) experiments\b", code, re.MULTILINE))


def interpreter(version):
    """Return a Python of a version on this machine, or skip the test."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))):
        if path and subprocess.run([path, "-c", "import ensurepip"], capture_output=True).returncode == 0:
            return path
    return pytest.skip(f"there is no Python {version} with venv on this machine")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of this repository."""
    folder = tmp_path_factory.mktemp("clone") / "duat-jax"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(clone):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", clone.parent, clone]
    subprocess.run(command, check=True)
    return next(clone.parent.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_first_cell_runs_outside_of_the_repository_with_the_wheel_and_without(version, wheel, clone, tmp_path):
    subprocess.run([interpreter(version), "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-c", ROOT / "constraints.txt", f"{wheel}[images]", "ipython"], check=True)
    # Git asks the clone instead of the address.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{clone}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
        "IPYTHONDIR": str(tmp_path),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }

    def run(path):
        """Run a notebook's first cell, and return where the package is then and the version of JAX."""
        shown = "import duat_jax, jax; duat_jax.load(); print(duat_jax.__file__, jax.__version__)"
        cell = tmp_path / f"{path.stem}.ipy"
        cell.write_text(f"{cells(path, 'code')[0]}\n{shown}\n", encoding="utf-8")
        command = [python, "-m", "IPython", "--no-banner", cell]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0 and "Error" not in ran.stdout + ran.stderr, ran.stdout + ran.stderr
        return ran.stdout.split()[-2:]

    found = [run(path) for path in NOTEBOOKS]
    assert {jax for _, jax in found} == {metadata.version("jax")}
    assert all(place.startswith(str(tmp_path / "venv")) for place, _ in found)
    for name in ("explain", "papers"):
        subprocess.run([*pip, "uninstall", "--yes", "duat-jax"], check=True)
        assert run(ROOT / "notebooks" / f"{name}.ipynb") == found[0]
