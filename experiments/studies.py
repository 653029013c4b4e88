"""The studies, by name."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from experiments.kept_results import ROOT
from experiments.study import Study


def name_of(file: Path) -> str:
    """Return the name of a study: of the folder's `run.py` its folder, of another module `folder_module`.

    Example:
        >>> name_of(Path("experiments/pruning/run.py")), name_of(Path("experiments/pruning/layers.py"))
        ('pruning', 'pruning_layers')
    """
    return file.parent.name if file.stem == "run" else f"{file.parent.name}_{file.stem}"


@cache
def studies() -> dict[str, str]:
    """Return the claim or question of every study, by its name."""
    # It is the first line of a module in a folder of `experiments` that has a function `main`.
    lines = {}
    for file in sorted((ROOT / "experiments").glob("*/*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        line = (ast.get_docstring(tree) or "").partition("\n")[0]
        has_main = any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
        if _has_study(tree) or (has_main and line.startswith(("Claim", "Question"))):
            lines[name_of(file)] = line
    return lines


def _has_study(tree: ast.Module) -> bool:
    """Return whether a module names a study."""
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return any(isinstance(target, ast.Name) and target.id == "STUDY" for target in targets)


@cache
def converted() -> list[str]:
    """Return the names of the studies that are stated as one `STUDY`."""
    files = sorted((ROOT / "experiments").glob("*/*.py"))
    return [name_of(file) for file in files if _has_study(ast.parse(file.read_text(encoding="utf-8")))]


def module_of(name: str) -> ModuleType:
    """Return the module of a study, imported."""
    folder, _, part = name.rpartition("_")
    whole = (ROOT / "experiments" / name / "run.py").exists()
    return import_module(f"experiments.{name}.run" if whole else f"experiments.{folder}.{part}")


def study_of(name: str) -> Study:
    """Return a study by its name."""
    study: Study = module_of(name).STUDY
    return study
