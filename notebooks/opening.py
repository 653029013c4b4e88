"""The beginning of every notebook: a badge that opens it on Colab, and a cell that installs the package there.

Both lead to the main branch, which is there before the first release and after it; the cell installs the clone around
the notebook, if there is one.  Run `python -m notebooks.opening` after a change of the repository's address in
`pyproject.toml`: it writes it into every notebook, and leads their links into the repository there.
"""

import re
import tomllib
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDRESS = PROJECT["urls"]["Repository"]
FILES = f"{ADDRESS}/blob/main"
"""Where the repository's files are shown."""

EXTRAS = {"papers": "[images]", "streams": "[images]"}
"""Extras of the package that a notebook needs."""

BADGE = re.compile(r"\[!\[Open in Colab\].*\n\n")
IN_THE_REPOSITORY = re.compile(r"(?<=\]\()(?:\.\./|https://[^)\s]*/blob/[^/]*/)(?=\w)")
BESIDE = re.compile(r"(?<=\]\()(?=[\w-]+\.ipynb)")


def badge(name: str) -> str:
    """Return the line that opens a notebook on Colab.

    Args:
        name: the notebook's file name.
    """
    colab = "https://colab.research.google.com"
    place = f"{FILES.removeprefix('https://github.com/')}/notebooks/{name}"
    return f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({colab}/github/{place})\n\n"


def first_cell(name: str) -> str:
    """Return the code that installs the package where it isn't.

    Args:
        name: the notebook's file name without its ending.
    """
    oldest = next(each for each in PROJECT["dependencies"] if each.startswith("jax>=")).removeprefix("jax>=")
    bound = ", ".join(oldest.split(".")[:2])
    extra = EXTRAS.get(name, "")
    return f"""from importlib import metadata, util
from pathlib import Path

if util.find_spec("duat_jax") is None:
    # pip leaves a JAX that is new enough as it is; an older one is renewed with its plugin for the GPU or TPU.
    plugins = {{"libtpu": "jax[tpu]", "jax_cuda12_plugin": "jax[cuda12]", "jax_cuda13_plugin": "jax[cuda13]"}}
    old = bool(util.find_spec("jax")) and tuple(map(int, metadata.version("jax").split(".")[:2])) < ({bound})
    kept = [build for plugin, build in plugins.items() if old and util.find_spec(plugin)]
    # The runtime has loaded its NumPy already: another one would need a restart.
    kept = " ".join([*kept, *(f"numpy=={{metadata.version('numpy')}}" for _ in filter(util.find_spec, ["numpy"]))])
    clone = Path("../duat_jax").is_dir()
    package = "..{extra}" if clone else "duat-jax{extra} @ git+{ADDRESS}"
    %pip install -q "{{package}}" {{kept}}

%matplotlib inline"""


def opened(notebook: nbformat.NotebookNode, path: Path) -> nbformat.NotebookNode:
    """Return a notebook with its badge, its first cell of code, and its links into the repository.

    Args:
        notebook: the notebook, which is changed.
        path: its file.
    """
    title, *_ = (cell for cell in notebook.cells if cell.cell_type == "markdown")
    code, *_ = (cell for cell in notebook.cells if cell.cell_type == "code")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = IN_THE_REPOSITORY.sub(f"{FILES}/", BESIDE.sub(f"{FILES}/notebooks/", cell.source))
    title.source = badge(path.name) + BADGE.sub("", title.source)
    code.source = first_cell(path.stem)
    return notebook


if __name__ == "__main__":
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        nbformat.write(opened(nbformat.read(path, as_version=4), path), path)
