"""The notebooks' first cell: nothing where the package is, else JAX's build for the runtime's accelerator too."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize(
    ("runtime", "installed"),
    [
        ({"duat_jax", "jax", "libtpu"}, None),
        ({"jax"}, ["duat-jax"]),
        (set(), ["duat-jax"]),
        ({"jax", "libtpu"}, ["duat-jax", "jax[tpu]"]),
        ({"jax", "jax_cuda12_plugin"}, ["duat-jax", "jax[cuda12]"]),
        ({"jax", "jax_cuda13_plugin"}, ["duat-jax", "jax[cuda13]"]),
    ],
)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_first_cell_installs_what_fits_the_runtime(path, runtime, installed, monkeypatch):
    cells = json.loads(path.read_text())["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    code = "".join(line for line in first["source"] if not line.startswith("%"))
    commands = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in runtime else None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    exec(code, {})
    if installed is None:
        assert commands == []
    else:
        [[_, *command]] = commands
        assert command == ["-m", "pip", "install", "--quiet", *installed]
